/**
 * The token: what a write needs, and what only a guard gives.
 *
 * The class is exported as a type alone, its constructor is private and wants a key that never leaves
 * this module, and what it stands for is in a private member. So there is no way to one from outside
 * that compiles, and none that works: a copy, a clone, a subclass or a look-alike lacks the member.
 * @module
 */
import { LostError, NoTokenError } from "./errors.ts";

/** A program that runs under a token, with all that it started. */
export interface Program {
  /** The number of its process group; 0 if it never ran. */
  readonly pid: number;
  /** Resolves when nobody is left. */
  readonly gone: Promise<void>;
  /**
   * Ends it: in order if there is time, and by force before `msLeft()` is 0. Resolves when nobody is left;
   * false if somebody does not even end by force.
   */
  end(msLeft: () => number): Promise<boolean>;
  /** Lets processes that it leaves behind live on. */
  leave(): void;
}

/** What stands behind a token. */
export interface Grant {
  /** The store; null for an unguarded one, which goes for any. */
  readonly store: string | null;
  /** The fencing token; null where there is no lease. */
  readonly epoch: number | null;
  readonly node: string | null;
  readonly lockPath: string | null;
  /** Null, or the reason why no coordinator stands behind it. */
  readonly unguarded: string | null;
  readonly signal: AbortSignal;
  /** How long writes may be made: 0 once it is over, Infinity where there is no deadline. */
  readonly remainingMs: number;
  /** Until nothing may write any more, whether or not the grant is over already. */
  readonly msToDeadline: number;
  /** Null while writes may be made; else why not. */
  readonly refusal: NoTokenError | LostError | null;
  /** The commit-point check. */
  verify(options: { readonly signal?: AbortSignal }): Promise<void>;
  /** The agent's executable, where programs under the grant get its lock by way of that; else null. */
  readonly lockPasser: string | null;
  /** What a guarded program finds in its environment. */
  environment(): Record<string, string>;
  /** A program was started under the grant, and is not to outlive it. */
  keep(program: Program): void;
}

const KEY = Symbol("token");
let grantIn: (token: object) => Grant | null;
let mint: (grant: Grant) => Token;

/**
 * Proves that its bearer may write to a store now. Only {@linkcode Client.guard} and
 * {@linkcode unguarded} make one; it dies when the guard ends, when the lease goes, and at its
 * deadline.
 */
export class Token {
  readonly #grant: Grant;

  static {
    mint = (grant) => new Token(KEY, grant);
    grantIn = (token) => #grant in token ? token.#grant : null;
  }

  private constructor(key: symbol, grant: Grant) {
    if (key !== KEY) throw new TypeError("Cannot make a token: only a guard does");
    this.#grant = grant;
    Object.freeze(this);
  }

  /** The store it goes for; null for an unguarded one, which goes for any. */
  get store(): string | null {
    return this.#grant.store;
  }

  /**
   * The fencing token: stable within one holding, greater in each later one. Null where there is no
   * lease.
   */
  get epoch(): number | null {
    return this.#grant.epoch;
  }

  /** This host's node name; null where there is no lease. */
  get node(): string | null {
    return this.#grant.node;
  }

  /** The store's lock file; null where there is no lease. */
  get lockPath(): string | null {
    return this.#grant.lockPath;
  }

  /** Null, or the reason why no coordinator stands behind it. */
  get unguarded(): string | null {
    return this.#grant.unguarded;
  }

  /**
   * Aborts when the write is to stop: the lease runs out unrenewed (a third of the TTL before its deadline,
   * whether or not the agent says so), it is lost, the agent is gone, the guard has ended, or the signal
   * given to it aborted. The reason is an error that says which.
   */
  get signal(): AbortSignal {
    return this.#grant.signal;
  }

  /** How long it is good if nothing renews it, in ms: 0 once it is over. */
  get remainingMs(): number {
    return this.#grant.remainingMs;
  }

  /** Whether writes may be made with it now, as far as this process knows. */
  get live(): boolean {
    return this.#grant.refusal === null;
  }

  /**
   * The commit-point check, right before a write becomes visible: the coordinator confirms the lease
   * once more. If it throws, do not commit.
   *
   * @throws {LostError} if the lease went, or its deadline passed before there was an answer.
   * {@linkcode NoTokenError} if the guard has ended. {@linkcode UnavailableError} if the coordinator
   * does not confirm, or the agent is gone. What a signal aborts with meanwhile: the one given here, or
   * to the guard.
   */
  verify(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    return this.#grant.verify(options);
  }
}

/**
 * A token's type as parameter of a writing call: `any`, which is what `JSON.parse` gives and what is
 * assignable to everything else, does not compile.
 */
export type Genuine<T extends Token> = 0 extends 1 & T ? never : T;

/**
 * Makes a token. Not for programs: the package does not export it.
 *
 * @internal
 */
export function mintToken(grant: Grant): Token {
  return mint(grant);
}

/**
 * What stands behind `token`, for a write to `store` now.
 *
 * @throws {NoTokenError} if it was not made here by a guard, is another store's, or its guard ended.
 * {@linkcode LostError} if its lease went, or its deadline passed.
 * @internal
 */
export function grantOf(token: unknown, store: string): Grant {
  const grant = typeof token === "object" && token !== null ? grantIn(token) : null;
  if (grant === null) {
    throw new NoTokenError(
      `Cannot write to ${store}: what was given is no token; guard the write, and pass on the very ` +
        "token that the guard gives, not a copy",
    );
  }
  if (grant.store !== null && grant.store !== store) {
    throw new NoTokenError(`Cannot write to ${store}: the token is for ${grant.store}`);
  }
  const { refusal } = grant;
  if (refusal !== null) throw refusal;
  return grant;
}
