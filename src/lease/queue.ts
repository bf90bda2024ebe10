/**
 * Guards in the queue: they wait for their turn, for the lease, for the grace, first come, first
 * served.
 *
 * Lease and grace concern the store, not the turn: what they refuse, they refuse to every guard in
 * the queue that is not willing to wait for it. So a guard behind one that waits for the lease is
 * told at once who holds the store, instead of that it has to wait for its turn.
 * @module
 */
import type { Holder, Refusal } from "./errors.ts";
import {
  type Company,
  gate2Turn,
  gate3Lease,
  gate4Grace,
  type Guard,
  type Verdict,
} from "./gates.ts";
import { isOpen } from "./keep.ts";
import { enterLock } from "./commit.ts";
import { PassingMap } from "./passing_map.ts";
import * as refuse from "./refusals.ts";
import type { Ours } from "./state.ts";
import type { GuardRequest } from "./store_events.ts";
import { dueAt, type Moment, type StoreState } from "./store_state.ts";
import { seekLease } from "./unfit.ts";

/**
 * An acquisition asks three things, one after the other: to create the entry, for the record, to write ours.
 * Each has an answer, or is given up on; what a store is given up for is that, and not all together.
 */
const MAX_PUT_OFFS = 3;

/** A guard arrives. */
export function arrive(m: Moment, request: GuardRequest): void {
  const { store, nowMs, context } = m;
  store.lastAskedMs = nowMs;
  const { waitMs, waitLease, ...rest } = request;
  const guard: Guard = {
    ...rest,
    waitLease: waitLease && waitMs > 0,
    untilMs: nowMs + waitMs,
    answerByMs: nowMs + context.timing.answerWithinMs,
    putOffs: MAX_PUT_OFFS,
    displaced: false,
    at: "queue",
    epoch: 0,
    lockId: 0,
    needSeq: Infinity,
  };
  if (store.blocked !== null) {
    const { forMs, untilMs, finishByMs } = store.blocked;
    const pid = untilMs === Infinity ? firstPid(store) : null;
    const writing = pid === null ? null : { pid, leftMs: (finishByMs ?? Infinity) - nowMs };
    const leftMs = Math.min(forMs, untilMs - nowMs);
    return refuseGuard(m, guard, refuse.draining(store.code, leftMs, writing));
  }
  store.queue.set(guard.id, guard);
  seekLease(m);
  advance(m);
  if (!store.queue.has(guard.id)) return;
  recheck(m, guard);
  if (store.queue.has(guard.id)) dueAt(store, queueDueMs(m, guard));
}

/** Moves guards on from the front of the queue. */
export function advance(m: Moment): void {
  if (m.store.traffic === null) return;
  for (const guard of m.store.queue.values()) {
    const verdict = admit(m, guard);
    if (verdict === "wait") return;
    m.store.queue.delete(guard.id);
    if (verdict === "pass") enterLock(m, guard);
    else refuseGuard(m, guard, verdict);
  }
}

/**
 * Whoever waits for a turn, a grace or a lock is to be told of an outage within 2 s, as are those who do not
 * wait. So while somebody does, the newest write that was answered, of this store or another, is no older than
 * what one without an answer leaves of that. One store asks for all; where it is not answered at once, each
 * asks for itself.
 */
export function keepProven(m: Moment): void {
  const { store, nowMs, context } = m;
  const { lease } = store;
  if (store.traffic === null || !isOpen(lease, nowMs, context) || lease.write !== null) return;
  if (!context.connected || !isWaitedFor(store)) return;
  const { timing: { freshMs, sharedMs }, writes = NO_WRITES } = context;
  const staleMs = Math.max(lease.provenAtMs, writes.answeredMs) + freshMs;
  // A coordinator that is far away, or slow, must not be asked by each for that.
  const dueMs = writes.sentMs < staleMs ? staleMs : staleMs + Math.max(sharedMs, 2 * writes.rttMs);
  if (nowMs < dueMs) dueAt(store, dueMs);
  else m.stepLease({ type: "prove" });
}

const NO_WRITES = { sentMs: -Infinity, answeredMs: -Infinity, rttMs: 0 };

/** Whether a guard that will not wait for the lease waits for something else. */
function isWaitedFor({ queue, passing }: StoreState): boolean {
  for (const guard of queue.values()) if (!guard.waitLease) return true;
  for (const guard of passing.values()) if (guard.at === "lock" && !guard.waitLease) return true;
  return false;
}

/** Gates 2 to 4 for the guard at the front. */
function admit(m: Moment, guard: Guard): Verdict {
  const { store, nowMs, context } = m;
  if (!context.connected && !guard.waitLease) return refuse.unreachable(store.code, context);
  const turn = gate2Turn(guard, company(m), store.code, nowMs);
  if (turn !== "pass") return turn;
  const lease = gate3Lease(guard, store.lease, store.code, nowMs, context);
  if (lease !== "pass") return lease;
  const ours = store.lease as Ours;
  if (guard.displaced && !guard.waitLease) return refuse.notHolder(store.code, null, context.node);
  const grace = gate4Grace(guard, ours, store.code, nowMs);
  if (grace === "pass") guard.epoch = ours.epoch;
  return grace;
}

/** Who has a grant or is about to have one. */
function company({ store }: Moment): Company {
  let { exclusive, shared } = store.grants.live;
  for (const guard of store.passing.values()) guard.shared ? shared++ : exclusive++;
  return { exclusive, shared, why: (code) => inTheWay(code, store) };
}

/** A guard that itself only waits for the lock file is in nobody's way: whoever has that locked is. */
function inTheWay(code: string, store: StoreState): Refusal {
  const [next] = store.passing.values();
  if (store.grants.liveCount > 0 || next === undefined || next.at !== "lock") {
    return refuse.turnTaken(code, firstPid(store));
  }
  return refuse.lockAwaited(code);
}

function firstPid({ grants, passing }: StoreState): number | null {
  for (const grant of grants.all.values()) if (grant.lost === null) return grant.guard.pid;
  for (const guard of passing.values()) return guard.pid;
  return null;
}

/** Refuses a guard anywhere in the queue whose wait is over, or pointless. */
function recheck(m: Moment, guard: Guard): void {
  const refusal = patienceEnded(m, guard);
  if (refusal === null) return;
  m.store.queue.delete(guard.id);
  refuseGuard(m, guard, refusal);
}

function patienceEnded(m: Moment, guard: Guard): Refusal | null {
  const { store, nowMs, context } = m;
  const { lease, code } = store;
  if (!context.connected && !guard.waitLease) return refuse.unreachable(code, context);
  if (isOpen(lease, nowMs, context)) {
    const grace = gate4Grace(guard, lease, code, nowMs);
    if (typeof grace !== "string") return grace;
    if (nowMs < guard.untilMs) return null;
    const turn = gate2Turn(guard, company(m), code, nowMs);
    if (turn === "pass" && !context.connected) return refuse.unreachable(code, context);
    return inTheWay(code, store);
  }
  if (guard.waitLease && nowMs >= guard.untilMs) {
    if (context.connected && lease.phase === "foreign") {
      return refuse.notHolder(code, lease.holder, context.node);
    }
    // What comes of the attempt under way is the true answer, if it comes soon.
    guard.waitLease = false;
    guard.answerByMs = nowMs + context.timing.answerWithinMs;
  }
  const verdict = gate3Lease(guard, lease, code, nowMs, context);
  return typeof verdict === "string" ? null : verdict;
}

/** Ends every wait in the queue that is over. */
export function sweepQueue(m: Moment): void {
  for (const guard of m.store.queue.values()) {
    recheck(m, guard);
    if (m.store.queue.has(guard.id)) dueAt(m.store, queueDueMs(m, guard));
  }
}

function queueDueMs(m: Moment, guard: Guard): number {
  const patient = guard.waitLease || isOpen(m.store.lease, m.nowMs, m.context);
  return patient ? guard.untilMs : guard.answerByMs;
}

/** The lease stopped being open: whoever waits now waits for the coordinator, from now on. */
export function waitForCoordinator(m: Moment): void {
  if (m.store.traffic === null) return;
  const answerByMs = m.nowMs + m.context.timing.answerWithinMs;
  for (const guard of m.store.queue.values()) guard.answerByMs = answerByMs;
  if (m.store.queue.size > 0) dueAt(m.store, answerByMs);
}

/** The coordinator answered while the lease was not open: who waits for it waits for the next answer. */
export function putOff({ store, nowMs, context }: Moment): void {
  if (store.traffic === null) return;
  for (const guard of store.queue.values()) {
    if (guard.putOffs-- > 0) guard.answerByMs = nowMs + context.timing.answerWithinMs;
  }
}

/** Puts guards that lost their tenure back, ahead of everybody: they had the turn. */
export function requeue(m: Moment, guards: readonly Guard[]): void {
  const ahead = guards.map((guard) => {
    guard.at = "queue";
    guard.displaced = true;
    guard.answerByMs = m.nowMs + m.context.timing.answerWithinMs;
    dueAt(m.store, guard.answerByMs);
    return [guard.id, guard] as const;
  });
  m.store.queue = new PassingMap([...ahead, ...m.store.queue]);
}

/** Refuses the guards in the queue that `which` picks. */
export function refuseQueue(
  m: Moment,
  which: (guard: Guard) => boolean,
  refusal: () => Refusal,
): void {
  if (m.store.traffic === null) return;
  for (const guard of m.store.queue.values()) {
    if (!which(guard)) continue;
    m.store.queue.delete(guard.id);
    refuseGuard(m, guard, refusal());
  }
}

/** Another node holds it: everybody who does not wait for the lease is told who. */
export function refuseForeign(m: Moment): void {
  const { lease, code } = m.store;
  const holder: Holder | null = lease.phase === "foreign" ? lease.holder : null;
  refuseQueue(m, (guard) => !guard.waitLease, () => refuse.notHolder(code, holder, m.context.node));
}

/** Refuses a guard. */
function refuseGuard(m: Moment, guard: Guard, refusal: Refusal): void {
  m.out.push({ type: "refused", id: guard.id, refusal });
}
