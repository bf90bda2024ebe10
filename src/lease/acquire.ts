/**
 * Becoming the holder: create the entry, or find out who has it.
 *
 * Only the write decides. A conflict is explained by reading the entry and its tenure record; what
 * was read says whom to name and what to expect next, never that the store is ours.
 * @module
 */
import type { EntryRead } from "./answers.ts";
import {
  becomeForeign,
  claimOn,
  EAGER_TRIES,
  exploreForeign,
  isClosed,
  isStuck,
  stayForeign,
} from "./foreign.ts";
import type {
  Acquiring,
  Common,
  Foreign,
  FoundEntry,
  Idle,
  LeaseContext,
  LeaseEvent,
  LeaseOutput,
  LeaseState,
  Ours,
} from "./state.ts";
import { attempt } from "./attempt.ts";
import { renewalDueMs } from "./timing.ts";

/** Tries after which a create refused without a visible entry waits a retry interval. */
const QUICK_PUZZLES = 2;

/** The state of a store nobody has asked about yet. */
export function initialLease(
  past: { stranger: boolean; graceUntilMs: number } = { stranger: false, graceUntilMs: 0 },
): Idle {
  return {
    phase: "idle",
    seq: 0,
    expect: 0,
    retryAtMs: 0,
    puzzles: 0,
    puzzledAtMs: 0,
    seen: false,
    ...past,
  };
}

/** Idle, to be tried again at `retryAtMs`. */
export function idle(
  from: Common,
  now: { retryAtMs: number; expect?: number; puzzles?: number; puzzledAtMs?: number },
): Idle {
  return {
    phase: "idle",
    seq: from.seq,
    graceUntilMs: from.graceUntilMs,
    stranger: from.stranger,
    seen: from.seen,
    expect: now.expect ?? 0,
    retryAtMs: now.retryAtMs,
    puzzles: now.puzzles ?? 0,
    puzzledAtMs: now.puzzledAtMs ?? 0,
  };
}

/** Sends the write that would make us the holder. */
function claimEntry(
  from: Common,
  nowMs: number,
  target:
    & Pick<Acquiring, "expect" | "claim">
    & Partial<Pick<Acquiring, "known" | "puzzles" | "puzzledAtMs" | "eager" | "heirOf">>,
  out: LeaseOutput[],
): Acquiring {
  const begun = attempt(from, "put");
  out.push({ type: "put_entry", seq: begun.seq, expect: target.expect });
  return { ...begun, ...target, sentAtMs: nowMs };
}

/** Asks who holds it, without wishing to be the one. */
function lookUp(from: Idle | Foreign, out: LeaseOutput[]): Acquiring {
  const begun = attempt(from, "look");
  out.push({ type: "read_entry", seq: begun.seq });
  return from.phase === "idle" ? { ...begun, expect: from.expect } : { ...begun, known: from };
}

/** A store that is not ours, and somebody wants it. */
export function stepAside(
  state: Idle | Foreign,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  switch (event.type) {
    case "acquire":
      if (!context.connected) return state;
      return state.phase === "idle"
        ? claimEntry(state, nowMs, {
          expect: state.expect,
          claim: "create",
          puzzles: state.puzzles,
          puzzledAtMs: state.puzzledAtMs,
        }, out)
        : claimEntry(state, nowMs, {
          expect: 0,
          claim: "create",
          known: state,
          eager: state.eager,
        }, out);
    case "look":
      return context.connected ? lookUp(state, out) : state;
    case "tenure":
      if (state.phase !== "foreign" || !isClosed(event.record)) return state;
      if (event.record.epoch < (state.holder.epoch ?? 0)) return state;
      return { ...state, eager: EAGER_TRIES, retryAtMs: nowMs };
    default:
      return state;
  }
}

/** An answer to a create, or to a question why it was refused. */
export function stepAcquiring(
  state: Acquiring,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  if (event.type === "tenure" && isClosed(event.record)) return { ...state, eager: EAGER_TRIES };
  if (!("seq" in event) || event.seq !== state.seq) return state;
  const { outcome } = event;
  if (outcome.kind === "unknown") {
    // The entry may have become ours all the same. The retry then meets a conflict, reads our own
    // incarnation, and adopts it as a new tenure: no waiting for our own entry to age out.
    if (state.step === "tenure") return becomeForeign(state, null, nowMs, context, out);
    out.push({ type: "unreachable", reason: outcome.reason });
    return idle(state, {
      retryAtMs: nowMs + context.timing.retryMs,
      // What was expected of an entry is not what a create expects: the claim is made anew.
      expect: state.claim === "create" ? state.expect : 0,
      puzzles: state.puzzles,
      puzzledAtMs: state.puzzledAtMs,
    });
  }
  if (event.type === "put_done") {
    return event.outcome.kind === "ok"
      ? becomeOurs(state, event.outcome.value, { nowMs, context, out })
      : explainConflict(state, outcome.kind === "conflict" ? outcome.lastRevision : undefined, {
        nowMs,
        context,
        out,
      });
  }
  if (event.type === "entry_read" && event.outcome.kind === "ok") {
    return onFound(state, event.outcome.value, nowMs, context, out);
  }
  if (event.type === "tenure_read" && event.outcome.kind === "ok") {
    return becomeForeign(state, event.outcome.value.record, nowMs, context, out);
  }
  return state;
}

function becomeOurs(
  state: Acquiring,
  epoch: number,
  at: { nowMs: number; context: LeaseContext; out: LeaseOutput[] },
): Ours {
  const seq = state.seq + 1;
  at.out.push({ type: "read_tenure", seq });
  return {
    phase: "ours",
    seq,
    graceUntilMs: state.graceUntilMs,
    stranger: state.stranger,
    seen: state.seen,
    epoch,
    revision: epoch,
    provenAtMs: at.context.rules.deadlineFromSend ? state.sentAtMs : at.nowMs,
    acquiredAtMs: at.nowMs,
    claim: state.claim,
    heirOf: state.heirOf,
    awaited: null,
    write: null,
    again: false,
    dueAtMs: renewalDueMs(state.sentAtMs, { epoch, revision: epoch }, at.context.timing),
    doubt: null,
    record: { at: "reading", seq },
    releaseReason: null,
  };
}

function explainConflict(
  state: Acquiring,
  lastRevision: number | undefined,
  at: { nowMs: number; context: LeaseContext; out: LeaseOutput[] },
): LeaseState {
  const { known } = state;
  if (known !== null && lastRevision === known.revision) {
    return stayForeign(known, state, at.nowMs, at.context, at.out);
  }
  const seq = state.seq + 1;
  at.out.push({ type: "read_entry", seq });
  return { ...state, step: "entry", seq };
}

function onFound(
  state: Acquiring,
  found: EntryRead,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  if (found.kind === "entry") return onFoundEntry(state, found, nowMs, context, out);
  if (state.step === "look") {
    out.push({ type: "vacant" });
    const expect = found.kind === "tombstone" ? found.revision : 0;
    return idle(state, { retryAtMs: nowMs + context.timing.renewEveryMs, expect });
  }
  const puzzles = state.puzzles + 1;
  const puzzledAtMs = state.puzzles === 0 ? nowMs : state.puzzledAtMs;
  const expect = found.kind === "tombstone" ? found.revision : 0;
  if (puzzles <= QUICK_PUZZLES) {
    return claimEntry(state, nowMs, { expect, claim: "create", puzzles, puzzledAtMs }, out);
  }
  // Refused though nothing is to be seen: a replica that kept an expired entry (nats-server#3653),
  // or a stale read. Somebody else's hold cannot be excluded, so keep trying, at a slower pace.
  out.push({ type: "unreachable", reason: "the coordinator refuses a create but shows no entry" });
  if (isStuck(nowMs - puzzledAtMs, context)) {
    out.push({ type: "stuck", forMs: nowMs - puzzledAtMs });
  }
  const retryAtMs = nowMs + context.timing.retryMs;
  return idle(state, { retryAtMs, expect, puzzles, puzzledAtMs });
}

function onFoundEntry(
  state: Acquiring,
  entry: FoundEntry,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  const claim = claimOn(entry, context);
  if (claim !== null) {
    return claimEntry(state, nowMs, {
      expect: entry.revision,
      claim,
      heirOf: claim === "own" ? null : entry.incarnation,
      puzzles: state.puzzles + 1,
      puzzledAtMs: state.puzzles === 0 ? nowMs : state.puzzledAtMs,
    }, out);
  }
  if (state.known?.revision === entry.revision) {
    return stayForeign(state.known, state, nowMs, context, out);
  }
  return exploreForeign(state, entry, { known: state.known, eager: state.eager }, out);
}
