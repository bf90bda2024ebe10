/**
 * The lease's transition function: a state, an event and the time give the next state and what to
 * do. Nothing else is looked at.
 * @module
 */
import { stepAcquiring, stepAside } from "./acquire.ts";
import { remember } from "./foreign.ts";
import { isValid, lose, stepOurs } from "./keep.ts";
import { stepReleasing } from "./release.ts";
import type { LeaseContext, LeaseEvent, LeaseOutput, LeaseState } from "./state.ts";
import { deadlineMs } from "./timing.ts";

/** The next state and what to do, in this order. */
export interface Step {
  readonly state: LeaseState;
  readonly outputs: readonly LeaseOutput[];
}

/**
 * One transition. `nowMs` is CLOCK_BOOTTIME, read before anything that this step asks for is sent.
 *
 * A hold whose deadline has passed is lost before the event is looked at: so an acknowledgement
 * that arrives after its own deadline finds no hold to prolong, whatever woke us and however late.
 */
export function step(
  state: LeaseState,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
): Step {
  const outputs: LeaseOutput[] = [];
  const current = remember(
    expire(state, event, nowMs, context, outputs),
    event,
    nowMs,
    context,
    outputs,
  );
  return { state: transition(current, event, nowMs, context, outputs), outputs };
}

function expire(
  state: LeaseState,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  outputs: LeaseOutput[],
): LeaseState {
  if (state.phase !== "ours" || isValid(state, nowMs, context)) return state;
  const late = event.type === "put_done" && event.outcome.kind === "ok";
  if (late && !context.rules.lateAck) return state;
  return lose(state, "deadline", nowMs, outputs);
}

function transition(
  state: LeaseState,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  outputs: LeaseOutput[],
): LeaseState {
  switch (state.phase) {
    case "idle":
    case "foreign":
      return stepAside(state, event, nowMs, context, outputs);
    case "acquiring":
      return stepAcquiring(state, event, nowMs, context, outputs);
    case "ours":
      return stepOurs(state, event, nowMs, context, outputs);
    case "releasing":
      return stepReleasing(state, event, nowMs, context, outputs);
  }
}

/** When the lease next wants a tick; Infinity when only an answer or a request moves it on. */
export function wakeAtMs(state: LeaseState, context: LeaseContext): number {
  switch (state.phase) {
    case "idle":
    case "foreign":
      return state.retryAtMs;
    case "ours": {
      const deadline = deadlineMs(state.provenAtMs, context.timing);
      if (!context.connected) return deadline;
      const grace = state.record.at === "done" && state.graceUntilMs > 0
        ? state.graceUntilMs
        : Infinity;
      const renews = state.write === null && state.doubt === null && state.releaseReason === null;
      const due = renews ? state.dueAtMs : Infinity;
      const record = state.record.at === "waiting" ? state.record.retryAtMs : Infinity;
      return Math.min(
        deadline,
        grace,
        due,
        record,
        state.record.at === "done" ? state.awaited?.lookAtMs ?? Infinity : Infinity,
        state.doubt?.seq === 0 ? state.doubt.retryAtMs : Infinity,
      );
    }
    default:
      return Infinity;
  }
}
