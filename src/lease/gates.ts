/**
 * The gates of a guard, one function each, in the order in which a guard goes through them.
 *
 * Each says `pass`, `wait`, or why the guard is refused. None waits, sends or locks: that is done by
 * the store that asks; gate 1 stands before there is one, and is asked by the agent.
 * @module
 */
import { isOpen } from "./keep.ts";
import type { Refusal } from "./errors.ts";
import {
  clientsLeft,
  inGrace,
  noStoreCode,
  staleEpoch,
  unavailable,
  unreachable,
} from "./refusals.ts";
import type { LeaseContext, LeaseState, Ours } from "./state.ts";
import { isStoreCode } from "./store_code.ts";
import type { OnDisk } from "./store_events.ts";

/** A request to write, on its way through the gates. */
export interface Guard {
  /** Unique within the agent; also names its grant. */
  readonly id: number;
  readonly shared: boolean;
  /** Whether it waits for the lease; taken back once its time is up. */
  waitLease: boolean;
  readonly follow: boolean;
  readonly passLock: boolean;
  /** The process that asked. */
  readonly pid: number;
  readonly socket?: number;
  /** Until when it waits for a turn, a grace or a lock. */
  readonly untilMs: number;
  /** Until when it waits for the coordinator, when it does. */
  answerByMs: number;
  /** How many answers of a slow coordinator may put that off. */
  putOffs: number;
  /** It had passed the lease gate in a tenure that was lost. */
  displaced: boolean;
  at: "queue" | "lock" | "fence" | "proof";
  /** The tenure it passed the lease gate in. */
  epoch: number;
  lockId: number;
  /** The first write that was sent after its fence. */
  needSeq: number;
}

/** What a gate says. */
export type Verdict = "pass" | "wait" | Refusal;

/** Who has, or is about to have, a grant on the store. */
export interface Company {
  readonly exclusive: number;
  readonly shared: number;
  /** Why the turn is not free: who has a grant, or what the next one waits for. */
  readonly why: (store: string) => Refusal;
}

/** Gate 1, the store code: nothing is kept, and nobody asked, for what is none. */
export function gate1Store(code: string): "pass" | Refusal {
  return isStoreCode(code) ? "pass" : noStoreCode(code);
}

/** Gate 2, the turn: exclusive against everybody, shared against the exclusive. */
export function gate2Turn(guard: Guard, company: Company, store: string, nowMs: number): Verdict {
  const free = company.exclusive === 0 && (guard.shared || company.shared === 0);
  if (free) return "pass";
  return nowMs < guard.untilMs ? "wait" : company.why(store);
}

/** Gate 3, the lease: open for grants now, or the coordinator has to be asked. */
export function gate3Lease(
  guard: Guard,
  lease: LeaseState,
  store: string,
  nowMs: number,
  context: LeaseContext,
): Verdict {
  if (!context.connected) return guard.waitLease ? "wait" : unreachable(store, context);
  if (isOpen(lease, nowMs, context)) return "pass";
  if (guard.waitLease || nowMs < guard.answerByMs) return "wait";
  return unavailable(store, "no answer in time");
}

/** Gate 4, the grace: over, or worth waiting for. */
export function gate4Grace(guard: Guard, lease: Ours, store: string, nowMs: number): Verdict {
  if (nowMs >= lease.graceUntilMs) return "pass";
  if (lease.awaited !== null) {
    return nowMs < guard.untilMs ? "wait" : clientsLeft(store, lease.graceUntilMs - nowMs);
  }
  return lease.graceUntilMs <= guard.untilMs ? "wait" : inGrace(store, lease.graceUntilMs - nowMs);
}

/**
 * Gate 6, the fence on disk: an epoch above ours means that we are the stale one, or that the
 * coordinator has lost its past. (Gate 5, the lock, is an effect: its failure is a refusal as is.)
 */
export function gate6Fence(
  onDisk: OnDisk | null,
  lease: Ours,
  store: string,
  context: LeaseContext,
): Verdict {
  if (onDisk === null || onDisk.epoch <= lease.epoch || !context.rules.fence) return "pass";
  return staleEpoch(store, lease.epoch, onDisk);
}

/**
 * Gate 7, the commit-point check: a write sent after the fence was acknowledged before the
 * deadline, in the tenure in which the guard passed gate 3. Nothing that happened while the guard
 * waited for its turn or its lock can have gone unnoticed then (etcd#11456).
 */
export function gate7Proof(
  guard: Guard,
  lease: LeaseState,
  provenSeq: number,
  store: string,
  nowMs: number,
  context: LeaseContext,
): Verdict {
  const open = isOpen(lease, nowMs, context) && lease.epoch === guard.epoch;
  if (open && (provenSeq >= guard.needSeq || !context.rules.commitPoint)) return "pass";
  if (guard.waitLease || nowMs < guard.answerByMs) return "wait";
  return unavailable(store, "no answer in time");
}
