/**
 * Guards on their last stretch: the lock, the fence on disk, the commit-point check, the grant
 * (gates 5 to 8).
 * @module
 */
import type { Refusal } from "./errors.ts";
import { gate6Fence, gate7Proof, type Guard } from "./gates.ts";
import { isOpen } from "./keep.ts";
import * as refuse from "./refusals.ts";
import type { Ours } from "./state.ts";
import type { LockRefusal, OnDisk } from "./store_events.ts";
import { dueAt, type Moment } from "./store_state.ts";
import { deadlineMs } from "./timing.ts";
import { beFit, beUnfit, faultOf } from "./unfit.ts";

/** Gate 5: takes the lock, or joins the one that other shared guards of this tenure have. */
export function enterLock(m: Moment, guard: Guard): void {
  m.store.passing.set(guard.id, guard);
  guard.at = "lock";
  const effect = m.store.locks.enter(guard);
  if (effect !== null) m.out.push(effect);
  sweepLock(m, guard);
}

/** Ends the waits at a lock that others wait for longer. */
export function sweepLocks(m: Moment): void {
  for (const guard of m.store.passing.values()) sweepLock(m, guard);
}

function sweepLock(m: Moment, guard: Guard): void {
  const lock = guard.at === "lock" ? m.store.locks.get(guard.lockId) : undefined;
  if (lock === undefined || lock.state !== "waiting" || lock.untilMs <= guard.untilMs) return;
  if (m.nowMs >= guard.untilMs) drop(m, guard, refuse.lockAwaited(m.store.code));
  else dueAt(m.store, guard.untilMs);
}

/** The lock is ours. */
export function onLocked(m: Moment, lockId: number, onDisk: OnDisk | null): void {
  const lock = m.store.locks.get(lockId);
  if (lock === undefined) return;
  lock.state = "locked";
  lock.onDisk = onDisk;
  passLocked(m, lockId);
}

/** Takes the guards that stand behind a held lock to gate 6. */
export function passLocked(m: Moment, lockId: number): void {
  for (const guard of atLock(m, lockId)) gate6(m, guard);
}

/** The lease is open again after a doubt: guards that reached their lock meanwhile go on. */
export function resumeLocked(m: Moment): void {
  if (m.store.traffic === null) return;
  for (const guard of m.store.passing.values()) {
    if (guard.at !== "lock") continue;
    if (m.store.locks.get(guard.lockId)?.state === "locked") gate6(m, guard);
  }
}

/** The guards that wait at a lock. */
export function atLock(m: Moment, lockId: number): Guard[] {
  return [...m.store.passing.values()].filter((g) => g.at === "lock" && g.lockId === lockId);
}

/** The lock could not be had in the time of the guard it was asked for. */
export function onLockFailed(m: Moment, lockId: number, failure: LockRefusal): void {
  const waiting = atLock(m, lockId);
  m.store.locks.forget(lockId);
  const refusal = refuse.lockRefusal(m.store.code, failure);
  if (failure.kind !== "busy") beUnfit(m, faultOf(failure), refusal);
  for (const guard of waiting) {
    // Shared guards wait together, but not equally long.
    if (failure.kind === "busy" && m.nowMs < guard.untilMs) enterLock(m, guard);
    else drop(m, guard, refusal);
  }
}

function gate6(m: Moment, guard: Guard): void {
  const { lease, locks, code } = m.store;
  // In doubt: it is lost in a moment, or goes on from here when it is not.
  if (!isOpen(lease, m.nowMs, m.context) || lease.epoch !== guard.epoch) return;
  const onDisk = locks.get(guard.lockId)!.onDisk;
  const verdict = gate6Fence(onDisk, lease, code, m.context);
  if (verdict !== "pass") {
    beUnfit(m, "fence", verdict as Refusal);
    return drop(m, guard, verdict as Refusal);
  }
  guard.at = "fence";
  const { lockId, id: guardId, pid, socket, epoch } = guard;
  const lingerMs = guard.passLock ? m.context.timing.ttlMs : 0;
  m.out.push({ type: "write_fence", lockId, guardId, epoch, pid, socket, lingerMs });
}

/** Gate 6 is done, or the disk refused it. */
export function onFenceWritten(m: Moment, guardId: number, error: string | null): void {
  const { store, nowMs, context } = m;
  const guard = store.passing.get(guardId);
  if (guard === undefined || guard.at !== "fence") return;
  if (error !== null) {
    const refusal = refuse.misconfigured(store.code, error);
    beUnfit(m, "lock_file", refusal);
    return drop(m, guard, refusal);
  }
  beFit(m);
  store.locks.get(guard.lockId)!.onDisk = { epoch: guard.epoch, copyOf: null };
  guard.at = "proof";
  // Whatever is in flight now was sent before the fence and proves nothing for this guard.
  guard.needSeq = store.lease.seq + 1;
  guard.answerByMs = nowMs + context.timing.answerWithinMs;
  dueAt(store, proofDueMs(guard));
  if (context.rules.commitPoint) m.stepLease({ type: "prove" });
  else gate7(m, guard);
}

function proofDueMs(guard: Guard): number {
  return guard.waitLease ? Math.max(guard.untilMs, guard.answerByMs) : guard.answerByMs;
}

/**
 * A write was acknowledged: gate 7 for every guard that waits for one. If it was sent before the guard's fence
 * the next one is sent only now, and has as long to be answered.
 */
export function proveGuards(m: Moment): void {
  const { store, nowMs, context } = m;
  for (const guard of store.passing.values()) {
    if (guard.at !== "proof") continue;
    gate7(m, guard);
    if (store.passing.has(guard.id)) guard.answerByMs = nowMs + context.timing.answerWithinMs;
  }
}

/** Ends every wait for a proof that is over. */
export function sweepProofs(m: Moment): void {
  for (const guard of m.store.passing.values()) {
    if (guard.at !== "proof") continue;
    if (m.nowMs >= proofDueMs(guard)) guard.waitLease = false;
    gate7(m, guard);
    if (m.store.passing.has(guard.id)) dueAt(m.store, proofDueMs(guard));
  }
}

function gate7(m: Moment, guard: Guard): void {
  const { store, nowMs, context } = m;
  const verdict = gate7Proof(guard, store.lease, store.provenSeq, store.code, nowMs, context);
  if (verdict === "wait") return;
  if (verdict === "pass") gate8Grant(m, guard);
  else drop(m, guard, verdict);
}

/** Gate 8: the grant. */
function gate8Grant(m: Moment, guard: Guard): void {
  const { store } = m;
  const lease = store.lease as Ours;
  store.passing.delete(guard.id);
  store.grants.add(guard);
  if (guard.passLock) store.passed = true;
  m.out.push({
    type: "granted",
    id: guard.id,
    lockId: guard.lockId,
    epoch: lease.epoch,
    revision: lease.revision,
    deadlineMs: deadlineMs(lease.provenAtMs, m.context.timing),
  });
}

/** Refuses a guard and frees what its gates took. */
export function drop(m: Moment, guard: Guard, refusal: Refusal): void {
  m.store.passing.delete(guard.id);
  leaveLock(m, guard);
  m.out.push({ type: "refused", id: guard.id, refusal });
}

/** Takes a guard or grant from its lock. */
export function leaveLock(m: Moment, guard: Guard): void {
  const effect = m.store.locks.leave(guard);
  if (effect !== null) m.out.push(effect);
}
