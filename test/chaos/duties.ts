/**
 * What has to happen: after each calm every store is granted, every request is answered, and the
 * history tells all of it.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Event, EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

/** A request may be answered later than its wait by so much: the coordinator's 2 s, a busy machine. */
const ANSWER_SLACK_MS = 15_000;

/**
 * From each calm on, every store is granted within the bound, and before whatever ends the calm: who
 * runs it waits for that. Adds how long each took.
 */
export function findUnrecovered(
  events: readonly Event[],
  { stores, recoveryMs, older }: EventOf<"setup">,
  recoveriesMs: number[],
): Violation[] {
  const violations: Violation[] = [];
  const grants = events.filter((event) => event.kind === "grant")
    .filter(({ node }) => !older?.includes(node));
  const endMs = events.at(-1)!.t;
  events.forEach((calm, index) => {
    if (calm.kind !== "calm") return;
    const overMs = events.slice(index).find(({ kind }) => kind === "disturbed")?.t;
    const untilMs = Math.min(calm.t + recoveryMs, overMs ?? Infinity);
    for (const store of stores) {
      const granted = grants.find((grant) => grant.store === store && grant.t >= calm.t);
      if (granted !== undefined && granted.t <= untilMs) recoveriesMs.push(granted.t - calm.t);
      // Of a history that breaks off before, nothing is known.
      else if (untilMs <= endMs) violations.push(stuck(calm.t, store, untilMs));
    }
  });
  return violations;
}

function stuck(t: number, store: string, untilMs: number): Violation {
  const message =
    `store ${store} was not granted within ${(untilMs - t).toFixed(0)} ms after all ` +
    "was healed";
  return { rule: "stuck", t, message };
}

/** Every request has an answer, or its client or its agent went. */
export function findUnanswered(
  events: readonly Event[],
  attempts: readonly Attempt[],
): Violation[] {
  // Where the clients have come to their end, all is answered that ever will be.
  const ended = events.some(({ kind }) => kind === "end");
  const lastMs = events.at(-1)!.t;
  const killed = events.filter((event) => event.kind === "gone");
  return attempts.flatMap(({ id, ask, grant, refused, endMs }) => {
    if (ask === null || grant !== null || refused !== null || endMs !== null) return [];
    if (killed.some((kill) => id.startsWith(kill.prefix) && kill.t >= ask.t)) return [];
    if (!ended && lastMs < ask.t + ask.waitMs + ANSWER_SLACK_MS) return [];
    const message = `${id} on ${ask.node} asked for store ${ask.store} and had no answer`;
    return [{ rule: "stuck", t: ask.t, message } as const];
  });
}

/** What a history lacks that tells the whole of a run: what is not there cannot be judged. */
export function findGaps(events: readonly Event[]): Violation[] {
  const { t } = events.at(-1)!;
  const lacks: [kind: Event["kind"], what: string][] = [
    ["calm", "there was no calm, in which anything had to be granted"],
    ["end", "it breaks off: the clients never came to their end"],
  ];
  return lacks.filter(([kind]) => !events.some((event) => event.kind === kind))
    .map(([, what]) => ({ rule: "history", t, message: what }));
}
