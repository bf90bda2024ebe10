/**
 * Whether requests were answered in time: no later than they were willing to wait, and a little; and
 * not before that where the answer says that the wait was of no use.
 * @module
 */
import type { Causes } from "./causes.ts";
import type { Violation } from "./checker.ts";
import type { EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

/** Within so much of the outage an agent knows that the coordinator does not answer (the contract: 2 s). */
const COORDINATOR_MS = 2_000;

/**
 * What a loaded machine may add: to an agent, to the client that notes the answer, and to the start of
 * `agent guard`. Of 60,000 answers on two shared cores, under other loads, the slowest took 1.2 s of it.
 */
const BUSY_MACHINE_MS = 5_000;

/** `agent guard` gives up on an agent that does not answer after so much, and the agent is frozen. */
const NO_ANSWER_MS = 8_000;

/** A wait may end early by a timer's grain, and is noted after the agent was told of it. */
const EARLY_MS = 50;

/** What requests are answered by. */
type Answer = EventOf<"grant"> | EventOf<"refused">;

/** Answers that came too late, or too early. */
export function checkAnswers(attempts: readonly Attempt[], causes: Causes): Violation[] {
  return attempts.flatMap(({ id, ask, grant, refused }) => {
    const answer = grant ?? refused;
    if (ask === null || answer === null) return [];
    const wrong = tooLate(ask, answer, causes) ?? tooEarly(ask, answer, causes);
    if (wrong === null) return [];
    const what = answer.kind === "grant" ? "granted" : `told ${answer.why}`;
    const message = `${id} on ${ask.node} was ${what} ${wrong}`;
    return [{ rule: "answer", t: answer.t, message } as const];
  });
}

function tooLate(ask: EventOf<"ask">, answer: Answer, causes: Causes): string | null {
  const dueMs = Math.max(ask.t, waitEndMs(ask, answer, causes));
  const frozenMs = causes.frozenMs(ask.node, ask.t, answer.t);
  const patienceMs = ask.via === "guard" && frozenMs > 0 ? NO_ANSWER_MS : COORDINATOR_MS;
  const overMs = answer.t - dueMs - frozenMs;
  return overMs <= patienceMs + BUSY_MACHINE_MS ? null : `${overMs.toFixed(0)} ms after its wait`;
}

/** When it had to be answered: at the end of its wait, or as soon as there is nothing to wait for. */
function waitEndMs(ask: EventOf<"ask">, answer: Answer, causes: Causes): number {
  const endMs = ask.t + ask.waitMs;
  const outage = answer.kind === "refused" && answer.why === "unavailable" && !ask.waitLease;
  // Whoever waits for a turn hears of the outage when it comes.
  return outage ? Math.min(endMs, causes.beganMs(ask, ask.t, answer.t)) : endMs;
}

function tooEarly(ask: EventOf<"ask">, answer: Answer, causes: Causes): string | null {
  if (answer.kind === "grant") return null;
  const leftMs = ask.t + ask.waitMs - answer.t;
  const untilMs = answer.why === "grace" ? answer.retryAfterMs ?? 0 : 0;
  const early = `${leftMs.toFixed(0)} ms before its wait was over`;
  if (leftMs <= EARLY_MS) return null;
  switch (answer.why) {
    case "busy":
      return early;
    case "grace": // It is of no use to wait for one that ends later.
      return untilMs >= leftMs - EARLY_MS ? null : early;
    case "not_holder": // A conflict at the commit point ends the wait.
      return ask.waitLease && !causes.explain("lost", ask, ask.t, answer.t) ? early : null;
    default:
      return null;
  }
}
