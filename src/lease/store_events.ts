/**
 * What can happen to a store, and what a store asks for: the core's outer border.
 * @module
 */
import type { Refusal } from "./errors.ts";
import type { LeaseEvent, LeaseMemo, LeaseNote, LeaseRequest } from "./state.ts";

/** A guard as it arrives, its parameters checked. */
export interface GuardRequest {
  /** Unique within the agent; its grant is known by it. */
  readonly id: number;
  readonly shared: boolean;
  readonly waitMs: number;
  readonly waitLease: boolean;
  readonly follow: boolean;
  readonly passLock: boolean;
  /** The process that asked. */
  readonly pid: number;
  /** Its end of the connection, as the host's memory names it. */
  readonly socket?: number;
}

/** Why a lock could not be had. */
export type LockRefusal =
  | { readonly kind: "busy"; readonly path: string; readonly by: string | null }
  | { readonly kind: "unknown_store"; readonly path: string }
  | { readonly kind: "error"; readonly message: string };

/** What a look at a lock file showed. */
export interface LockLook {
  /** Why it cannot be locked; null where it can, or is. */
  readonly failure: LockRefusal | null;
  readonly onDisk: OnDisk | null;
}

/** What a lock file's line says; null in its place: nothing, or nobody could tell. */
export interface OnDisk {
  readonly epoch: number;
  /** The store that it names, where that is another: then the file is a copy of that one's. */
  readonly copyOf: string | null;
}

/** What can happen to a store. */
export type StoreEvent =
  | { readonly type: "lease"; readonly event: LeaseEvent }
  | { readonly type: "tick" }
  | { readonly type: "connected" }
  | { readonly type: "disconnected" }
  /** The setup contradicts the agent: nothing is granted until that is put right. */
  | { readonly type: "misconfigured"; readonly reason: string }
  | { readonly type: "guard"; readonly guard: GuardRequest }
  /** A guard or grant is over: released by its client, or (`gone`) its connection closed. */
  | { readonly type: "end"; readonly id: number; readonly gone: boolean }
  /** A grant could not be journaled, and so not be given: no grant of this host can be. */
  | { readonly type: "not_journaled"; readonly message: string }
  | { readonly type: "verify"; readonly id: number; readonly grantId: number }
  /**
   * Somebody asked whether it is held, and it may be for the first time. `atOnce`: the coordinator is
   * asked now, not when there is room.
   */
  | { readonly type: "ask"; readonly id: number; readonly atOnce: boolean }
  | { readonly type: "locked"; readonly lockId: number; readonly onDisk: OnDisk | null }
  | { readonly type: "lock_failed"; readonly lockId: number; readonly failure: LockRefusal }
  /**
   * The lock file was looked at. `free`: nobody has the store locked, not even a process that a client
   * left behind; as far as can be seen, where the file cannot be used.
   */
  | ({
    readonly type: "lock_probed";
    readonly free: boolean;
    readonly fully: boolean;
  } & LockLook)
  | { readonly type: "lock_checked"; readonly lockId: number; readonly current: boolean }
  | {
    readonly type: "fence_written";
    readonly guardId: number;
    /** Why it could not be written; null when it was. */
    readonly error: string | null;
  }
  /** Stop granting, let grants finish, release; not wanted again for `forMs` after that. */
  | {
    readonly type: "drain";
    readonly reason: string;
    readonly forMs: number;
    /** Until when grants may finish; only told to people. */
    readonly finishByMs?: number;
    /** `forMs` begins no sooner than the drain is over, even if nothing is to be released. */
    readonly untilOver?: boolean;
  }
  /** Nobody waits for the drain any more: `forMs` begins, released or not. */
  | { readonly type: "drain_over" };

/** What a caller of `guard` is granted. */
export interface GrantFacts {
  readonly epoch: number;
  readonly revision: number;
  readonly deadlineMs: number;
}

/** What a store asks for, to be carried out in order. */
export type StoreEffect =
  | LeaseRequest
  | LeaseMemo
  /** Something happened that logs, metrics and watchers want to know. */
  | { readonly type: "note"; readonly note: LeaseNote }
  /** Tick the store when there is room for an attempt that nobody waits for. */
  | { readonly type: "defer" }
  /** Tick the store at this time. */
  | { readonly type: "wake"; readonly atMs: number }
  | { readonly type: "lock"; readonly lockId: number; readonly untilMs: number }
  /** Give up the lock, or the wait for it. */
  | { readonly type: "unlock"; readonly lockId: number }
  | { readonly type: "check_lock"; readonly lockId: number }
  /** See whether anybody has the store locked; and (`fully`) whether its file can be read and written. */
  | { readonly type: "probe_lock"; readonly fully: boolean }
  | {
    readonly type: "write_fence";
    readonly lockId: number;
    readonly guardId: number;
    readonly epoch: number;
    readonly pid: number;
    readonly socket?: number;
    /** How long what its client may leave running can write at most, once neither of us is there. */
    readonly lingerMs: number;
  }
  | ({ readonly type: "granted"; readonly id: number; readonly lockId: number } & GrantFacts)
  | { readonly type: "refused"; readonly id: number; readonly refusal: Refusal }
  | ({ readonly type: "verified"; readonly id: number } & GrantFacts)
  | { readonly type: "verify_failed"; readonly id: number; readonly refusal: Refusal }
  /**
   * A grant's lease is about to run out, was renewed, or is lost; `deadlineMs`: the latest deadline that
   * its client was told, by this or before.
   */
  | { readonly type: "expiring"; readonly id: number; readonly deadlineMs: number }
  | { readonly type: "renewed"; readonly id: number; readonly deadlineMs: number }
  | {
    readonly type: "grant_lost";
    readonly id: number;
    readonly refusal: Refusal;
    readonly deadlineMs: number;
  }
  /** The grant is over and forgotten; what its client left running may write until `lingerUntilMs`. */
  | { readonly type: "grant_ended"; readonly id: number; readonly lingerUntilMs: number }
  | { readonly type: "answer"; readonly id: number; readonly held: boolean };
