/**
 * What the agent is made of and what its callers see.
 * @module
 */
import type { Kind, Refusal } from "../lease/errors.ts";
import type { Rules } from "../lease/rules.ts";
import type { LeaseNote } from "../lease/state.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { Coordinator } from "../ports/coordinator.ts";
import type { HostMemory } from "../ports/host_memory.ts";
import type { LockFiles } from "../ports/lock_file.ts";

/** Who an agent is and what it allows. */
export interface AgentOptions {
  readonly node: string;
  /** The random id of this run. */
  readonly incarnation: string;
  /** Where writes for this node can be sent, told to others; null for nowhere. */
  readonly address: string | null;
  /** Milliseconds: the TTL to reckon with until the bucket's is known. */
  readonly ttlMs?: number;
  /** Milliseconds; undefined: the TTL. */
  readonly graceMs?: number;
  readonly interestMs?: number;
  /** How long grants may finish when leases are given up. */
  readonly drainMs: number;
  readonly maxWaiters: number;
  /** Guards and grants of one connection. */
  readonly maxGrants: number;
  /** Guards and grants of all connections: each may have a lock file open. */
  readonly maxLocks: number;
  /** Stores that may become known, in all and by one user; default: generous. */
  readonly maxStores?: { readonly all: number; readonly ofUser: number };
  /** Why there is no coordinator behind this agent; null where there is one. */
  readonly standalone: string | null;
  /** All of them, but in the simulator. */
  readonly rules?: Rules;
}

/** What an agent needs of its surroundings. */
export interface AgentPorts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly coordinator: Coordinator;
  readonly locks: LockFiles;
  readonly memory: HostMemory;
  /** An unguessable token. */
  readonly newToken: () => string;
  readonly observer: Observer;
  /** A grant is no permission any more, but something may run under it that was passed the lock. */
  readonly onLeft?: (left: Left) => void;
}

/** What was passed the lock of a grant that is over or lost: it may write until its deadline, not after. */
export interface Left {
  readonly store: string;
  /** What was started under it has this token in its environment: a sure sign, for it is secret. */
  readonly token: string;
  /** The latest deadline that the client was told, on CLOCK_BOOTTIME. */
  readonly untilMs: number;
  /** Whether the client went without letting go; else it was told of the loss, and is to let go. */
  readonly gone: boolean;
  /** The client's user, as the kernel told it; left out where nobody knows. */
  readonly uid?: number;
  /** The client's process; 0 where it cannot be seen from here. */
  readonly pid: number;
  /** Whether others may have been granted the same lock at the same time. */
  readonly shared: boolean;
}

/** Told of what happens, for logs and metrics. */
export interface Observer {
  /** A store's lease changed. */
  note(store: string, note: LeaseNote): void;
  /** A guard was granted or refused, after so long. */
  guarded(store: string, outcome: "granted" | Kind, tookMs: number): void;
  /** A grant's lease went while its client held it. */
  grantLost(store: string, kind: Kind, pid: number): void;
  /** Something an operator should know; `problem` null: it is over. */
  problem(name: string, problem: string | null): void;
}

/** A connection's end in the agent. */
export interface Client {
  readonly id: number;
  readonly pid: number;
  /** The client's end of the connection, by the number of its inode; 0 where nobody knows. */
  readonly socket?: number;
  /** Whose process it is; left out where nobody knows. */
  readonly uid?: number;
  /** Whether it reads more slowly than it is written to. */
  readonly congested: boolean;
  /** Calls back once when it has caught up, never at once. */
  onDrain(callback: () => void): void;
  /** The token is dead: its lease was lost. */
  lost(grant: { token: string; store: string; kind: Kind; message: string }): void;
  /** The deadline draws near unrenewed, or has moved. */
  deadline(change: "expiring" | "renewed", grant: {
    token: string;
    store: string;
    deadlineMs: number;
  }): void;
  /** A watched store changed. */
  changed(subscription: string, lease: LeaseInfo): void;
}

/** Parameters of a guard, checked. */
export interface GuardParams {
  readonly store: string;
  readonly waitMs: number;
  readonly shared: boolean;
  readonly waitLease: boolean;
  readonly passLock: boolean;
  readonly follow: boolean;
}

/** A grant as its client sees it. */
export interface Granted {
  readonly token: string;
  readonly store: string;
  readonly epoch: number;
  readonly revision: number;
  readonly deadlineMs: number;
  readonly remainingMs: number;
  readonly lockPath: string;
  /** The locked descriptor, ours to close. */
  readonly fd: number;
}

/** A grant as `verify` sees it. */
export interface Verified {
  readonly store: string;
  readonly epoch: number;
  readonly revision: number;
  readonly remainingMs: number;
}

/** Takes exactly one answer. */
export interface Answer<T> {
  ok(result: T): void;
  fail(refusal: Refusal): void;
}

/** A store's lease as others see it. */
export interface LeaseInfo {
  readonly store: string;
  readonly state: "self" | "other" | "free";
  readonly held: boolean;
  readonly node: string | null;
  readonly address: string | null;
  readonly epoch: number | null;
  /** RFC 3339. */
  readonly since: string | null;
}

/** How many of what there are. */
export interface Counts {
  readonly held: number;
  /** Stores of ours that may not be granted yet: recording, or in a grace. */
  readonly waiting: number;
  readonly foreign: number;
  readonly grants: number;
  readonly waiters: number;
}

/** One thing that has to be right for writes to be guarded. */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** What is right or wrong, and what to do about it. */
  readonly message: string;
}
