/**
 * What a store remembers, and the moment in which one event is handled.
 * @module
 */
import type { Guard } from "./gates.ts";
import type { Grants } from "./grants.ts";
import type { Locks } from "./locks.ts";
import type { LeaseContext, LeaseEvent, LeaseState } from "./state.ts";
import type { StoreEffect } from "./store_events.ts";

/** The mutable state of one store. Only the modules of the core touch it. */
export interface StoreState {
  readonly code: string;
  lease: LeaseState;
  /** Guards that wait for turn, lease or grace, in order of arrival. */
  queue: Map<number, Guard>;
  /** Guards between gates 5 and 7. */
  readonly passing: Map<number, Guard>;
  readonly grants: Grants;
  readonly locks: Locks;
  /** First questions whether it is held. */
  readonly asks: { readonly id: number; readonly answerByMs: number }[];
  /** Whether an attempt to hold it was ever answered, so that its state can be told from memory. */
  resolved: boolean;
  /** The newest write acknowledged in time. */
  provenSeq: number;
  lastAskedMs: number;
  /** Set while nothing is granted because the store is drained. */
  blocked: Blocked | null;
  /** An epoch of ours that was found to be stale, while it is being given back. */
  stale: { readonly epoch: number; readonly recorded: number } | null;
  /** The newest epoch above ours that the disk has shown; 0 for none. */
  newerOnDisk: number;
  /** Whether a client was passed the lock since it was last seen free: a child may have it still. */
  passed: boolean;
  /** When to see again whether the lock is free. */
  probeAtMs: number;
  /** Whether an attempt to acquire waits for room. */
  deferred: boolean;
  /** The earliest time at which a guard, a verify or a question has waited long enough. */
  dueMs: number;
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
