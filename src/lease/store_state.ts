/**
 * What a store remembers, and the moment in which one event is handled.
 * @module
 */
import type { Guard } from "./gates.ts";
import type { Refusal } from "./errors.ts";
import { Grants } from "./grants.ts";
import { Locks } from "./locks.ts";
import { isOpen } from "./keep.ts";
import { PassingMap } from "./passing_map.ts";
import type { LeaseContext, LeaseEvent, LeaseState, UnfitFor } from "./state.ts";
import type { StoreEffect } from "./store_events.ts";

/** What somebody wants of one store, or has of it. */
export interface Traffic {
  /** Guards that wait for turn, lease or grace, in order of arrival. */
  queue: PassingMap<number, Guard>;
  /** Guards between gates 5 and 7. */
  readonly passing: PassingMap<number, Guard>;
  readonly grants: Grants;
  readonly locks: Locks;
  /** First questions whether it is held. */
  readonly asks: { readonly id: number; readonly answerByMs: number }[];
}

/** The mutable state of one store. Only the modules of the core touch it. */
export class StoreState {
  readonly code: string;
  lease: LeaseState;
  /** Whether an attempt to hold it was ever answered, so that its state can be told from memory. */
  resolved = false;
  /** The newest write acknowledged in time. */
  provenSeq = 0;
  lastAskedMs: number;
  /** Set while nothing is granted because the store is drained. */
  blocked: Blocked | null = null;
  /** An epoch of ours that was found to be stale, while it is being given back. */
  stale: { readonly epoch: number; readonly recorded: number } | null = null;
  /** Why this host cannot write it; null while it can, for all we know. */
  unfit: Unfit | null = null;
  /**
   * Whether a client was passed the lock since it was last seen free: a child may have it still. At
   * first: of an earlier agent of this host, for all we know.
   */
  passed = true;
  /** When to see again whether the lock is free. */
  probeAtMs = 0;
  /** Whether an attempt to acquire waits for room. */
  deferred = false;
  /** The earliest time at which a guard, a verify or a question has waited long enough. */
  dueMs = Infinity;
  #traffic: Traffic | null = null;
  #lastLockId = 0;

  constructor(code: string, lease: LeaseState, nowMs: number) {
    this.code = code;
    this.lease = lease;
    this.lastAskedMs = nowMs;
  }

  /** Null while nobody wants or has anything: most of very many stores, most of the time. */
  get traffic(): Traffic | null {
    return this.#traffic;
  }

  get queue(): PassingMap<number, Guard> {
    return this.#busy.queue;
  }

  set queue(queue: PassingMap<number, Guard>) {
    this.#busy.queue = queue;
  }

  get passing(): PassingMap<number, Guard> {
    return this.#busy.passing;
  }

  get grants(): Grants {
    return this.#busy.grants;
  }

  get locks(): Locks {
    return this.#busy.locks;
  }

  get asks(): Traffic["asks"] {
    return this.#busy.asks;
  }

  /** Lets go of what is needed for traffic, if there is none any more. */
  rest(nowMs: number): void {
    if (this.#traffic === null) return;
    const { queue, passing, grants, locks, asks } = this.#traffic;
    if (queue.size > 0 || passing.size > 0 || asks.length > 0) return;
    if (grants.mayStillWrite(nowMs) || grants.verifies.length > 0 || locks.size > 0) return;
    // A lock's number is never used again: something that was heard of it may be on its way.
    this.#lastLockId = locks.lastId;
    this.#traffic = null;
  }

  get #busy(): Traffic {
    return this.#traffic ??= {
      queue: new PassingMap(),
      passing: new PassingMap(),
      grants: new Grants(),
      locks: new Locks(this.#lastLockId),
      asks: [],
    };
  }
}

/** Whether a writer of this host may count on the store now. */
export function isHeld(store: StoreState, nowMs: number, context: LeaseContext): boolean {
  const { lease, blocked, unfit } = store;
  return blocked === null && unfit === null && isOpen(lease, nowMs, context) &&
    nowMs >= lease.graceUntilMs;
}

/** A drain: nothing is granted while it lasts. */
export interface Blocked {
  readonly reason: string;
  /** How long the store is not wanted again once it is released. */
  readonly forMs: number;
  /** When that is over; Infinity while it is not released. */
  readonly untilMs: number;
  /** Until when grants may finish, where that is known. */
  readonly finishByMs?: number;
  /** Whether `forMs` begins only when the drain is over, as for a store that is not ours to release. */
  readonly untilOver?: boolean;
}

/** What was found wrong with a store's disk, and when. */
export interface Unfit {
  readonly why: UnfitFor;
  readonly refusal: Refusal;
  /** The tenure in which it was found: a later one is looked at anew. */
  readonly epoch: number;
  /** Until then, the coordinator is not asked whether it gives a higher epoch by now. */
  readonly againAtMs: number;
}

/** What is known of a store when somebody first asks about it. */
export interface StoreOptions {
  readonly nowMs: number;
  readonly pinned?: boolean;
  readonly stranger?: boolean;
  readonly graceUntilMs?: number;
  /** Until when what earlier clients of this host left running may write. */
  readonly lingerUntilMs?: number;
}

/** One event being handled: the time, what may be looked at, and where effects go. */
export interface Moment {
  readonly store: StoreState;
  readonly nowMs: number;
  readonly context: LeaseContext;
  readonly out: StoreEffect[];
  /** Takes the lease one step on, and tells everybody concerned. */
  stepLease(event: LeaseEvent): void;
}

/** Something has to be looked at again at this time. */
export function dueAt(store: StoreState, atMs: number): void {
  if (atMs < store.dueMs) store.dueMs = atMs;
}
