/**
 * Which renewals can wait while there are too many at a time.
 * @module
 */
import type { LeaseContext } from "../lease/lease_context.ts";
import type { Store } from "../lease/store.ts";

/**
 * Requests in flight at which renewals wait for answers. A coordinator of these days answers so many
 * in a tenth of a second. After a pause of agent or coordinator very many renewals are due at once:
 * sent together, those that are answered last would have timed out by then, and a renewal given up on
 * costs three requests more.
 */
export const CROWD = 4_096;

/**
 * Whether a store's tick is no more than a renewal that nobody waits for, and which is due long
 * before the hold ends: it has two thirds of the TTL until then, less what its retries may need.
 */
export function mayWait(store: Store, nowMs: number, { timing }: LeaseContext): boolean {
  const { lease } = store;
  return lease.phase === "ours" && lease.record.at === "done" && lease.doubt === null &&
    lease.releaseReason === null && store.waiting === 0 && store.unfinished === 0 &&
    nowMs < lease.provenAtMs + (2 / 3) * timing.ttlMs;
}
