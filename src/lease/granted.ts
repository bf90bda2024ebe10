/**
 * Grants that are out: their verification, renewal notices, end and loss.
 * @module
 */
import { atLock, enterLock, leaveLock, passLocked } from "./commit.ts";
import type { Refusal } from "./errors.ts";
import type { Grant, Loss, Verify } from "./grants.ts";
import * as refuse from "./refusals.ts";
import type { Ours } from "./state.ts";
import type { StoreEffect } from "./store_events.ts";
import { dueAt, type Moment } from "./store_state.ts";
import { deadlineMs } from "./timing.ts";

/** What a loss means, in words. */
export const LOSS: Record<Loss, string> = {
  conflict: "the coordinator refused its renewal, so another node may hold it by now",
  deadline: "no renewal was acknowledged before its deadline",
  store_removed: "its lock file was removed or replaced",
};

/** The kind told with a loss, so that "another holds it" and "nobody answers" stay apart. */
const LOSS_KIND = {
  conflict: "not_holder",
  deadline: "unavailable",
  store_removed: "unknown_store",
} as const;

/** The deadline of the hold; the lease is ours. */
function holdDeadlineMs(m: Moment): number {
  return deadlineMs((m.store.lease as Ours).provenAtMs, m.context.timing);
}

/** A write numbered `seq` was acknowledged: tell followers, answer verifies. */
export function proveGrants(m: Moment, seq: number): void {
  const deadline = holdDeadlineMs(m);
  for (const grant of m.store.grants.all.values()) {
    if (grant.lost !== null || !grant.guard.follow) continue;
    m.out.push({ type: "renewed", id: grant.guard.id, deadlineMs: deadline });
  }
  const { epoch, revision } = m.store.lease as Ours;
  settleVerifies(m, (verify) => {
    const { id, needSeq } = verify;
    if (seq >= needSeq) return { type: "verified", id, epoch, revision, deadlineMs: deadline };
    // Its own write is sent only now.
    if (needSeq < Infinity) verify.answerByMs = m.nowMs + m.context.timing.answerWithinMs;
    return null;
  });
}

/** Every live grant is lost for good; its lock stays until its client lets go. */
export function loseGrants(m: Moment, reason: Loss, deadline: number): void {
  for (const grant of m.store.grants.all.values()) loseGrant(m, grant, reason, deadline);
  const refusal = refuse.lost(m.store.code, LOSS[reason]);
  settleVerifies(m, ({ id }) => ({ type: "verify_failed", id, refusal }));
}

function loseGrant(m: Moment, grant: Grant, reason: Loss, deadline: number): void {
  if (!m.store.grants.lose(grant, reason, deadline)) return;
  const refusal = { ...refuse.lost(m.store.code, LOSS[reason]), kind: LOSS_KIND[reason] };
  m.out.push({ type: "grant_lost", id: grant.guard.id, refusal, deadlineMs: deadline });
}

/** A verify of a grant: is its lock still the store's, and does the coordinator still agree? */
export function onVerify(m: Moment, id: number, grantId: number): void {
  const refusal = cannotVerify(m, grantId);
  if (refusal !== null) return void m.out.push({ type: "verify_failed", id, refusal });
  const answerByMs = m.nowMs + m.context.timing.answerWithinMs;
  m.store.grants.verifies.push({ id, grantId, answerByMs, needSeq: Infinity });
  dueAt(m.store, answerByMs);
  const { lockId } = m.store.grants.all.get(grantId)!.guard;
  m.out.push({ type: "check_lock", lockId });
}

function cannotVerify(m: Moment, grantId: number): Refusal | null {
  const { code, grants } = m.store;
  const grant = grants.all.get(grantId);
  if (grant === undefined) return refuse.noToken(code);
  if (grant.lost !== null) return refuse.lost(code, LOSS[grant.lost]);
  return m.context.connected
    ? null
    : refuse.cannotVerify(code, m.context.downReason ?? "not connected");
}

/** A lock was looked at, for a verify or for a shared guard that joins it. */
export function onLockChecked(m: Moment, lockId: number, current: boolean): void {
  if (current) passLocked(m, lockId);
  else onLockReplaced(m, lockId);
  let prove = false;
  for (const verify of m.store.grants.verifies) {
    if (verify.needSeq !== Infinity || lockOf(m, verify) !== lockId) continue;
    verify.needSeq = m.store.lease.seq + 1;
    prove = true;
  }
  if (prove) m.stepLease({ type: "prove" });
}

function lockOf(m: Moment, verify: Verify): number | undefined {
  return m.store.grants.all.get(verify.grantId)?.guard.lockId;
}

/** The store was removed or made again under its grants: what they guarded is not there. */
function onLockReplaced(m: Moment, lockId: number): void {
  const { store } = m;
  const joining = atLock(m, lockId);
  store.locks.retire(lockId);
  const deadline = store.lease.phase === "ours" ? holdDeadlineMs(m) : m.nowMs;
  for (const grant of store.grants.all.values()) {
    if (grant.guard.lockId === lockId) loseGrant(m, grant, "store_removed", deadline);
  }
  const refusal = refuse.lost(store.code, LOSS.store_removed);
  settleVerifies(
    m,
    (verify) =>
      lockOf(m, verify) === lockId ? { type: "verify_failed", id: verify.id, refusal } : null,
  );
  for (const guard of joining) {
    leaveLock(m, guard);
    enterLock(m, guard);
  }
}

/**
 * A client let go, or (`gone`) its connection closed. Who went with the lock in hand may have left
 * a process behind that writes on until the deadline it was told; see {@linkcode Grants.linger}.
 */
export function endGrant(m: Moment, id: number, gone: boolean): void {
  const { store } = m;
  const grant = store.grants.end(id);
  if (grant === undefined) return;
  const lingerUntilMs = gone && grant.guard.passLock ? knownDeadlineMs(m, grant) : 0;
  store.grants.linger(lingerUntilMs);
  leaveLock(m, grant.guard);
  const refusal = refuse.noToken(store.code);
  settleVerifies(
    m,
    (verify) => verify.grantId === id ? { type: "verify_failed", id: verify.id, refusal } : null,
  );
  m.out.push({ type: "grant_ended", id, lingerUntilMs });
}

/** The latest deadline that the grant's client was told. */
function knownDeadlineMs(m: Moment, grant: Grant): number {
  return m.store.lease.phase === "ours" && grant.lost === null
    ? holdDeadlineMs(m)
    : grant.deadlineMs;
}

/** Ends every verify that has waited long enough. */
export function sweepVerifies(m: Moment): void {
  const refusal = refuse.cannotVerify(m.store.code, "no answer in time");
  settleVerifies(m, ({ id, answerByMs }) => {
    if (m.nowMs >= answerByMs) return { type: "verify_failed", id, refusal };
    dueAt(m.store, answerByMs);
    return null;
  });
}

/** Answers the verifies for which `settle` has an answer. */
export function settleVerifies(m: Moment, settle: (verify: Verify) => StoreEffect | null): void {
  const { verifies } = m.store.grants;
  if (verifies.length === 0) return;
  for (const verify of verifies.splice(0)) {
    const effect = settle(verify);
    if (effect === null) verifies.push(verify);
    else m.out.push(effect);
  }
}

/** When the clients of live grants are told that the lease runs out unrenewed. */
export function warnAtMs(m: Moment): number {
  if (m.store.lease.phase !== "ours" || m.store.grants.liveCount === 0) return Infinity;
  const deadline = holdDeadlineMs(m);
  return m.store.grants.warnedFor === deadline ? Infinity : deadline - m.context.timing.ttlMs / 3;
}

/** Tells the clients of live grants, once for each deadline. */
export function warn(m: Moment): void {
  if (m.nowMs < warnAtMs(m)) return;
  const deadline = holdDeadlineMs(m);
  m.store.grants.warnedFor = deadline;
  for (const grant of m.store.grants.all.values()) {
    if (grant.lost !== null) continue;
    m.out.push({ type: "expiring", id: grant.guard.id, deadlineMs: deadline });
  }
}

/** How often to see whether a lock that keeps a lease from being released is free. */
const PROBE_EVERY_MS = 100;

/**
 * Whether a process that a client left behind may still have the lock, and so may write: looked at
 * before a clean release, since whoever comes next would not wait for it. While it has the lock, the
 * lease is kept; where the agent ends before it, the lease ages out and the next holder owes a grace.
 */
export function awaitLock(m: Moment): boolean {
  const { store, nowMs } = m;
  if (!store.passed) return false;
  if (nowMs >= store.probeAtMs) {
    store.probeAtMs = nowMs + PROBE_EVERY_MS;
    m.out.push({ type: "probe_lock", fully: false });
  }
  dueAt(store, store.probeAtMs);
  return true;
}
