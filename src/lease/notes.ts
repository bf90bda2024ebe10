/**
 * What a change of the lease, or an event that concerns the whole store, means for its guards,
 * grants and questions.
 * @module
 */
import * as commit from "./commit.ts";
import type { Refusal } from "./errors.ts";
import { isAside } from "./foreign.ts";
import * as granted from "./granted.ts";
import { isOpen } from "./keep.ts";
import * as queue from "./queue.ts";
import * as refuse from "./refusals.ts";
import type { LeaseEvent, LeaseNote, LeaseState, LossReason, Ours } from "./state.ts";
import { step } from "./step.ts";
import type { StoreEvent } from "./store_events.ts";
import { dueAt, isHeld, type Moment } from "./store_state.ts";
import { deadlineMs } from "./timing.ts";
import { seekLease, staysUnfit } from "./unfit.ts";

function isAnswer(event: LeaseEvent): boolean {
  return "outcome" in event && event.outcome.kind !== "unknown";
}

/** Takes the lease one step on, and tells everybody in the store whom it concerns. */
export function stepLease(m: Moment, event: LeaseEvent): void {
  const before = m.store.lease;
  const { state, outputs } = step(before, event, m.nowMs, m.context);
  m.store.lease = state;
  if (isAnswer(event) && !isOpen(before, m.nowMs, m.context)) queue.putOff(m);
  for (const output of outputs) {
    switch (output.type) {
      case "acquired":
      case "proven":
      case "lost":
      case "foreign":
      case "released":
      case "unreachable":
      case "stale":
      case "stuck":
      case "unfit":
        m.out.push({ type: "note", note: output });
        onNote(m, output, before);
        break;
      case "vacant":
        m.out.push({ type: "probe_lock", fully: true });
        break;
      default:
        m.out.push(output);
    }
  }
}

function onNote(m: Moment, note: LeaseNote, before: LeaseState): void {
  switch (note.type) {
    case "acquired":
      if (m.store.unfit !== null) m.out.push({ type: "probe_lock", fully: true });
      return resolve(m);
    case "proven":
      m.store.provenSeq = note.seq;
      if (m.store.traffic === null) return;
      granted.proveGrants(m, note.seq);
      return commit.proveGuards(m);
    case "lost":
      return onLost(m, note.reason, before as Ours);
    case "foreign":
      queue.refuseForeign(m);
      return resolve(m);
    case "unreachable":
      onUnreachable(m, note.reason);
      return resolve(m);
    case "stale":
      m.store.stale = note;
      refuseStale(m);
      return resolve(m);
    case "released":
      // Whoever asked meanwhile would be told nothing better by another try.
      refuseStale(m);
      m.store.stale = null;
      if (m.store.unfit !== null && (m.store.traffic?.queue.size ?? 0) > 0) seekLease(m);
      return;
    default:
      return;
  }
}

function refuseStale(m: Moment): void {
  const { code, stale } = m.store;
  if (stale === null) return;
  queue.refuseQueue(
    m,
    () => true,
    () => refuse.staleEpoch(code, stale.epoch, { epoch: stale.recorded }),
  );
}

/** The lock file was looked at: nothing is acquired that cannot be written. */
export function onProbed(
  m: Moment,
  { free, fully, ...look }: Extract<StoreEvent, { type: "lock_probed" }>,
): void {
  if (free) m.store.passed = false;
  if (!fully || !staysUnfit(m, look)) return;
  const { refusal } = m.store.unfit!;
  queue.refuseQueue(m, () => true, () => refusal);
}

/** First questions are answered: an attempt to hold the store has come to something. */
function resolve(m: Moment): void {
  const { store, nowMs, context } = m;
  store.resolved = true;
  if (store.traffic === null || store.asks.length === 0) return;
  const held = isHeld(store, nowMs, context);
  for (const { id } of store.asks.splice(0)) m.out.push({ type: "answer", id, held });
}

/**
 * The tenure is over. Guards that had passed the lease gate start over if they are willing to wait
 * for the lease; the others are refused: as unavailable when the coordinator was silent, as not
 * the holder, with the new one's name as soon as it is known, when it refused.
 */
function onLost(m: Moment, reason: LossReason, before: Ours): void {
  const { store } = m;
  if (store.traffic === null) return;
  granted.loseGrants(m, reason, deadlineMs(before.provenAtMs, m.context.timing));
  const passing = [...store.passing.values()];
  for (const guard of passing) {
    if (reason === "deadline" && !guard.waitLease) {
      commit.drop(m, guard, refuse.unavailable(store.code, "the lease ran out unrenewed"));
      continue;
    }
    store.passing.delete(guard.id);
    commit.leaveLock(m, guard);
  }
  queue.requeue(m, passing.filter((guard) => reason === "conflict" || guard.waitLease));
  if (store.lease.phase === "idle") {
    queue.refuseQueue(
      m,
      (guard) => guard.displaced && !guard.waitLease,
      () => refuse.notHolder(store.code, null, m.context.node),
    );
  }
}

/** A request had no answer, or the connection went: no guard waits for what may not come. */
export function onUnreachable(m: Moment, reason: string): void {
  if (m.store.traffic !== null) {
    const refusal = refuse.unavailable(m.store.code, reason);
    queue.refuseQueue(m, (guard) => !guard.waitLease, () => refusal);
    for (const guard of m.store.passing.values()) {
      if (!guard.waitLease) commit.drop(m, guard, refusal);
    }
    const unverified = refuse.cannotVerify(m.store.code, reason);
    granted.settleVerifies(m, ({ id }) => ({ type: "verify_failed", id, refusal: unverified }));
  }
  if (!m.context.connected) resolve(m);
}

/** A guard or grant is over. */
export function onEnd(m: Moment, id: number, gone: boolean): void {
  if (m.store.queue.delete(id)) return;
  const guard = m.store.passing.get(id);
  if (guard === undefined) return granted.endGrant(m, id, gone);
  m.store.passing.delete(id);
  commit.leaveLock(m, guard);
}

/** Somebody asks whether the store is held; the first answer waits for the coordinator. */
export function onAsk(m: Moment, { id, atOnce }: Extract<StoreEvent, { type: "ask" }>): void {
  const { store, nowMs, context } = m;
  store.lastAskedMs = nowMs;
  if (store.resolved || !context.connected || store.blocked !== null) {
    return void m.out.push({ type: "answer", id, held: isHeld(store, nowMs, context) });
  }
  const answerByMs = nowMs + context.timing.answerWithinMs;
  store.asks.push({ id, answerByMs });
  dueAt(store, answerByMs);
  if (atOnce) seekLease(m);
}

/** Nothing is granted any more until the store was given up, and for `forMs` after that. */
export function onDrain(
  m: Moment,
  { reason, forMs, finishByMs, untilOver }: Extract<StoreEvent, { type: "drain" }>,
): void {
  const { store } = m;
  // The newest order counts, but a step-down must not end a shutdown.
  if (store.blocked?.forMs !== Infinity || forMs === Infinity) {
    store.blocked = { reason, forMs, untilMs: Infinity, finishByMs, untilOver };
  }
  refuseWaiting(m, refuse.draining(store.code, store.blocked.forMs));
  resolve(m);
}

/** Ends every guard that has no grant yet. */
export function refuseWaiting(m: Moment, refusal: Refusal): void {
  if (m.store.traffic === null) return;
  queue.refuseQueue(m, () => true, () => refusal);
  for (const guard of m.store.passing.values()) commit.drop(m, guard, refusal);
}

/** A store that was drained may be given up by now, released or otherwise gone. */
export function noticeGivenUp(m: Moment): void {
  if (isAside(m.store.lease) && !m.store.blocked?.untilOver) beginHoldOff(m);
}

/** The store was given up, or cannot be in time. */
export function beginHoldOff(m: Moment): void {
  const { blocked } = m.store;
  if (blocked === null || blocked.untilMs !== Infinity) return;
  m.store.blocked = { ...blocked, untilMs: m.nowMs + blocked.forMs };
}

/** Ends every wait that is over. */
export function sweep(m: Moment): void {
  const { store, nowMs } = m;
  store.dueMs = Infinity;
  if (store.traffic === null) return;
  // First come first served, even if woken late: whose way is free by now has not waited in vain.
  queue.advance(m);
  queue.sweepQueue(m);
  commit.sweepLocks(m);
  commit.sweepProofs(m);
  granted.sweepVerifies(m);
  if (store.asks.some((ask) => nowMs >= ask.answerByMs)) resolve(m);
  for (const ask of store.asks) dueAt(store, ask.answerByMs);
}
