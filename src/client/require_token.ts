/**
 * For writers of writing calls.
 * @module
 */
import { type Genuine, grantOf, type Token } from "./token.ts";

/**
 * Refuses a write to `store` unless `token` is a living one for it: what every writing call does
 * first. A call that makes something visible also awaits {@linkcode Token.verify} right before.
 *
 * @example
 * ```ts
 * async function push<T extends Token>(token: Genuine<T>, store: string, pack: Pack) {
 *   requireToken(token, store);
 *   const staged = await stage(pack, token.signal);
 *   await token.verify();
 *   await publish(staged);
 * }
 * ```
 *
 * @throws {NoTokenError} if it is forged, copied, another store's, or its guard has ended.
 * {@linkcode LostError} if its lease went, or its deadline passed.
 */
export function requireToken<T extends Token>(token: Genuine<T>, store: string): void {
  grantOf(token, store);
}
