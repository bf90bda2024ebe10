/**
 * Keeping a hold: the tenure record that opens it, renewals, proofs, doubt, and its loss.
 *
 * At most one write of a store is in flight. Its acknowledgement moves the deadline to its own send
 * time plus the TTL less the margin; nothing else does.
 * @module
 */
import { idle } from "./acquire.ts";
import type { EntryRead } from "./answers.ts";
import { claimOn, exploreForeign } from "./foreign.ts";
import { onRecordRead, onRecordWritten, onRenewed } from "./record.ts";
import { beginRelease } from "./release.ts";
import type {
  LeaseContext,
  LeaseEvent,
  LeaseOutput,
  LeaseState,
  LossReason,
  Ours,
} from "./state.ts";
import { deadlineMs, renewalDueMs } from "./timing.ts";

/** How soon the entry is read again when reading it back after a conflict had no answer. */
const DOUBT_RETRY_MS = 100;

/** How often to look whether awaited clients live: costs microseconds, and a second is promised. */
const CLIENTS_LOOK_MS = 50;

/** Whether the hold is valid at `nowMs`. It says nothing of record, grace and doubt. */
export function isValid(state: Ours, nowMs: number, context: LeaseContext): boolean {
  return nowMs < deadlineMs(state.provenAtMs, context.timing);
}

/** Whether grants may be made on the hold: valid, recorded, not in doubt, not being released. */
export function isOpen(state: LeaseState, nowMs: number, context: LeaseContext): state is Ours {
  return state.phase === "ours" && isValid(state, nowMs, context) &&
    (state.record.at === "done" || !context.rules.tenureRecord) &&
    (state.doubt === null || !context.rules.conflictStops) &&
    state.releaseReason === null;
}

/** One step of a hold. The caller has checked that it is still valid. */
export function stepOurs(
  state: Ours,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  return settle(onEvent(state, event, nowMs, context, out), nowMs, context, out);
}

function onEvent(
  state: Ours,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  switch (event.type) {
    case "prove":
      return state.write !== null || state.doubt !== null
        ? { ...state, again: true }
        : { ...state, dueAtMs: nowMs };
    case "release":
      return { ...state, releaseReason: state.releaseReason ?? event.reason };
    case "connected":
      return { ...state, dueAtMs: nowMs };
    case "put_done":
      return event.seq === state.write?.seq ? onPut(state, event, nowMs, context, out) : state;
    case "entry_read":
      return event.seq === state.doubt?.seq ? onReadBack(state, event, nowMs, context, out) : state;
    case "tenure_read":
      return state.record.at === "reading" && event.seq === state.record.seq
        ? onRecordRead(state, event, nowMs, context, out)
        : state;
    case "tenure_put":
      return state.record.at === "writing" && event.seq === state.record.seq
        ? onRecordWritten(state, event, nowMs, context, out)
        : state;
    default:
      return state;
  }
}

/** Sends whatever is due. One place, so that no event can forget it. */
function settle(
  state: LeaseState,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  if (state.phase !== "ours") return state;
  if (state.releaseReason !== null && !isBusy(state)) {
    return beginRelease(state, nowMs, context, out);
  }
  const served = closeGrace(lookForClients(state, nowMs, context), nowMs, out);
  if (!context.connected) return served;
  return renewIfDue(readIfDue(served, nowMs, out), nowMs, context, out);
}

/** The clients whom a grace is owed to may be gone by now: then it is over early. */
function lookForClients(state: Ours, nowMs: number, context: LeaseContext): Ours {
  const { awaited } = state;
  if (awaited === null || nowMs < awaited.lookAtMs) return state;
  if (nowMs >= state.graceUntilMs) return { ...state, awaited: null };
  if (context.inherits(awaited.incarnation)?.clientsGone === true) {
    return { ...state, awaited: null, graceUntilMs: awaited.owedUntilMs };
  }
  return { ...state, awaited: { ...awaited, lookAtMs: nowMs + CLIENTS_LOOK_MS } };
}

/** Whether something is in flight whose answer a release has to wait for. */
function isBusy({ write, record }: Ours): boolean {
  return write !== null || record.at === "reading" || record.at === "writing";
}

/** A grace that was served in full is owed no more, nor is a stranger's. */
function closeGrace(state: Ours, nowMs: number, out: LeaseOutput[]): Ours {
  if (state.record.at !== "done" || nowMs < state.graceUntilMs) return state;
  if (state.graceUntilMs === 0 && !state.stranger && !state.seen) return state;
  if (state.stranger) out.push({ type: "forget_stranger" });
  if (state.graceUntilMs > 0) out.push({ type: "forget_grace" });
  return { ...state, graceUntilMs: 0, stranger: false, seen: false };
}

function readIfDue(state: Ours, nowMs: number, out: LeaseOutput[]): Ours {
  let next = state;
  if (next.record.at === "waiting" && nowMs >= next.record.retryAtMs) {
    const seq = next.seq + 1;
    out.push({ type: "read_tenure", seq });
    next = { ...next, seq, record: { at: "reading", seq } };
  }
  if (next.doubt !== null && next.doubt.seq === 0 && nowMs >= next.doubt.retryAtMs) {
    const seq = next.seq + 1;
    out.push({ type: "read_entry", seq });
    next = { ...next, seq, doubt: { seq, retryAtMs: Infinity } };
  }
  return next;
}

function renewIfDue(
  state: Ours,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): Ours {
  if (state.write !== null || state.releaseReason !== null) return state;
  if (state.doubt !== null && context.rules.conflictStops) return state;
  if (!state.again && nowMs < state.dueAtMs) return state;
  return write(state, state.revision, nowMs, out);
}

function write(state: Ours, expect: number, nowMs: number, out: LeaseOutput[]): Ours {
  const seq = state.seq + 1;
  out.push({ type: "put_entry", seq, expect });
  return { ...state, seq, write: { seq, sentAtMs: nowMs }, again: false };
}

function onPut(
  state: Ours,
  event: Extract<LeaseEvent, { type: "put_done" }>,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  const { sentAtMs } = state.write!;
  const { outcome, seq } = event;
  switch (outcome.kind) {
    case "ok": {
      const provenAtMs = context.rules.deadlineFromSend ? sentAtMs : nowMs;
      out.push({ type: "proven", seq, tookMs: nowMs - sentAtMs });
      const renewed: Ours = {
        ...state,
        revision: outcome.value,
        provenAtMs,
        write: null,
        doubt: null,
        dueAtMs: renewalDueMs(
          sentAtMs,
          { epoch: state.epoch, revision: outcome.value },
          context.timing,
        ),
      };
      return onRenewed(renewed, seq, out);
    }
    case "conflict":
      // Refused again at what was read back: the read was stale, so not at once.
      return {
        ...state,
        write: null,
        doubt: { seq: 0, retryAtMs: state.doubt === null ? nowMs : nowMs + DOUBT_RETRY_MS },
      };
    case "unknown":
      // It may have landed, or may land later. The retry expects the same revision: if this write
      // landed, the retry meets a conflict, and reading back finds our own incarnation.
      out.push({ type: "unreachable", reason: outcome.reason });
      return {
        ...state,
        write: null,
        again: false,
        doubt: state.doubt && { seq: 0, retryAtMs: nowMs + DOUBT_RETRY_MS },
        dueAtMs: Math.max(nowMs, sentAtMs + context.timing.retryMs),
      };
  }
}

/**
 * The entry was read back after a conflict. Our own incarnation, before the deadline, can only be a
 * write of ours whose acknowledgement was missed: a compare-and-set on its revision goes on with
 * the tenure, and only its acknowledgement ends the doubt. Anything else ended the tenure.
 */
function onReadBack(
  state: Ours,
  event: Extract<LeaseEvent, { type: "entry_read" }>,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  const { outcome } = event;
  if (outcome.kind !== "ok") {
    return { ...state, doubt: { seq: 0, retryAtMs: nowMs + DOUBT_RETRY_MS } };
  }
  const found = outcome.value;
  if (found.kind === "entry" && claimOn(found, context) === "own") {
    // Before our record was there, that write may as well be a create that was given up on and landed after
    // somebody else's tenure, whose newer epoch we would then find on record. Nothing was granted yet: a
    // new tenure costs nothing.
    if (state.record.at !== "done") return lose(state, "conflict", nowMs, out);
    // Nothing newer than what was refused: the read was stale.
    if (found.revision < state.revision || !context.connected) {
      return { ...state, doubt: { seq: 0, retryAtMs: nowMs + DOUBT_RETRY_MS } };
    }
    return write({ ...state, doubt: { seq: -1, retryAtMs: Infinity } }, found.revision, nowMs, out);
  }
  return lose(state, "conflict", nowMs, out, found);
}

/** Ends the tenure against our will. */
export function lose(
  state: Ours,
  reason: LossReason,
  nowMs: number,
  out: LeaseOutput[],
  found?: EntryRead,
): LeaseState {
  out.push({ type: "lost", reason, epoch: state.epoch });
  if (found?.kind === "entry") {
    return exploreForeign(state, found, { known: null, eager: 0 }, out);
  }
  return idle(state, {
    retryAtMs: nowMs,
    expect: found?.kind === "tombstone" ? found.revision : 0,
  });
}
