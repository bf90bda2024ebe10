/**
 * Giving a hold back: first the tenure record is closed, then the entry is deleted, each by
 * compare-and-set. In this order a crash in between leaves a closed record and an entry that ages
 * out, and whoever comes next owes nothing; the other order would let a new holder find the record
 * still open and make it wait a grace for nobody.
 * @module
 */
import { idle } from "./acquire.ts";
import { claimOn } from "./foreign.ts";
import type {
  LeaseContext,
  LeaseEvent,
  LeaseOutput,
  LeaseState,
  Ours,
  Releasing,
} from "./state.ts";

/** The reason of a release because the coordinator has gone back in time. */
export const STALE = "stale_epoch";

/** How often an unanswered delete is tried: what is left then ages out within the TTL. */
const DELETE_TRIES = 3;

/** Starts to release; nothing is in flight on the entry. */
export function beginRelease(
  state: Ours,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  const seq = state.seq + 1;
  const releasing: Releasing = {
    phase: "releasing",
    step: "close",
    seq,
    graceUntilMs: state.graceUntilMs,
    stranger: state.stranger,
    seen: state.seen,
    epoch: state.epoch,
    revision: state.revision,
    acquiredAtMs: state.acquiredAtMs,
    reason: state.releaseReason ?? "released",
    clean: false,
    tries: 0,
  };
  if (releasing.reason === STALE) return sendDelete(releasing, state.revision, out);
  // A tenure that still owes a grace, or does not know yet, is not closed as clean, and its entry
  // is left to age out: the displaced holder it waits for may still be finishing. Whoever comes
  // next owes the grace, too, and a program that keeps none must not find the store free.
  const owing = nowMs < state.graceUntilMs;
  if (context.rules.graceCarried && (state.record.at !== "done" || owing)) {
    return finish(releasing, nowMs, null, context, out);
  }
  if (state.record.at !== "done") return sendDelete(releasing, state.revision, out);
  out.push({
    type: "put_tenure",
    seq,
    expect: state.record.revision,
    epoch: state.epoch,
    acquiredAtMs: state.acquiredAtMs,
    released: releasing.reason,
  });
  return releasing;
}

function sendDelete(state: Releasing, expect: number, out: LeaseOutput[]): Releasing {
  const seq = state.seq + 1;
  out.push({ type: "delete_entry", seq, expect });
  return { ...state, seq, step: "delete", tries: state.tries + 1 };
}

/** One step of a release. No renewal is ever sent from here on. */
export function stepReleasing(
  state: Releasing,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  if (!("seq" in event) || event.seq !== state.seq) return state;
  switch (event.type) {
    case "tenure_put":
      // Not acknowledged: the entry is deleted all the same, and the next holder owes a grace.
      return sendDelete({ ...state, clean: event.outcome.kind === "ok" }, state.revision, out);
    case "delete_done":
      return onDeleted(state, event.outcome, nowMs, context, out);
    case "entry_read": {
      // The delete met a conflict. A late renewal of ours is deleted at its revision; anything
      // else is not ours to touch (and was remembered for what it is before this step).
      const { outcome } = event;
      if (
        outcome.kind === "ok" && outcome.value.kind === "entry" &&
        claimOn(outcome.value, context) === "own" && state.tries < DELETE_TRIES
      ) return sendDelete(state, outcome.value.revision, out);
      return finish(state, nowMs, null, context, out);
    }
    default:
      return state;
  }
}

function onDeleted(
  state: Releasing,
  outcome: Extract<LeaseEvent, { type: "delete_done" }>["outcome"],
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  if (outcome.kind === "ok") return finish(state, nowMs, outcome.value, context, out);
  if (state.tries >= DELETE_TRIES || !context.connected) {
    return finish(state, nowMs, null, context, out);
  }
  if (outcome.kind === "unknown") return sendDelete(state, state.revision, out);
  const seq = state.seq + 1;
  out.push({ type: "read_entry", seq });
  return { ...state, seq, step: "entry" };
}

/** `tombstone` is the revision at which the entry was deleted; null: it was not, and may be there. */
function finish(
  state: Releasing,
  nowMs: number,
  tombstone: number | null,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  out.push({
    type: "released",
    clean: state.clean,
    deleted: tombstone !== null,
    epoch: state.epoch,
  });
  // A coordinator that lost its past is put right by an operator, not by asking it again at once.
  const pauseMs = state.reason === STALE ? context.timing.ttlMs : 0;
  return idle(state, { retryAtMs: nowMs + pauseMs, expect: tombstone ?? 0 });
}
