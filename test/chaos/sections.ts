/**
 * Critical sections: when a client believed, and was told, that it alone may write.
 * @module
 */
import type { Event, EventOf } from "./history.ts";

/** A time span in which one grant was live, by what its client had been told. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** The end of a command is noted so much later, on a busy machine: its lock is free before. */
const EXIT_LATE_MS = 5_000;

/** Everything about one request for a guard. */
export interface Attempt {
  readonly id: string;
  readonly ask: EventOf<"ask"> | null;
  readonly grant: EventOf<"grant"> | null;
  readonly refused: EventOf<"refused"> | null;
  /** Its lines in the store's log, in their order. */
  readonly writes: readonly EventOf<"written">[];
  /** When its client noted that it is over, if it did. */
  readonly endMs: number | null;
  /** The status of its command; null while that runs, or where there is none. */
  readonly status: number | null;
  /** When each deadline held, first to last; empty if it was not granted. */
  readonly spans: readonly Span[];
  /** The latest deadline that its client was told of; null where it is told none. */
  readonly deadlineMs: number | null;
  /** Why it was lost or could not be verified; null if neither. */
  readonly lostWhy: EventOf<"lost"> | EventOf<"unverified"> | null;
}

/** What agents keep of a TTL for clocks that run at different rates. The older program keeps nothing. */
const SKEW_MARGIN = 0.02;

/** For how long a proof is valid, from when it was sent. */
export function validityMs(ttlMs: number, older: boolean): number {
  return older ? ttlMs : ttlMs * (1 - SKEW_MARGIN);
}

type OfAttempt = Extract<Event, { id: string }>;

/** All requests for guards of a history, by id. */
export function attemptsOf(events: readonly Event[]): Map<string, Attempt> {
  const byId = new Map<string, OfAttempt[]>();
  const killed = events.filter((event) => event.kind === "gone");
  for (const event of events) {
    if (!("id" in event)) continue;
    const list = byId.get(event.id);
    if (list === undefined) byId.set(event.id, [event]);
    else list.push(event);
  }
  const attempts = new Map<string, Attempt>();
  for (const [id, list] of byId) {
    const gone = killed.find((kill) => id.startsWith(kill.prefix) && kill.t >= list[0].t);
    attempts.set(id, attemptOf(id, list, gone?.t ?? null));
  }
  return attempts;
}

function attemptOf(id: string, events: readonly OfAttempt[], goneMs: number | null): Attempt {
  const first = <K extends OfAttempt["kind"]>(kind: K) =>
    (events.find((event) => event.kind === kind) ?? null) as EventOf<K> | null;
  const grant = first("grant");
  const writes = events.filter((event) => event.kind === "written")
    .sort((a, b) => a.index - b.index);
  const lost = first("lost") ?? first("unverified");
  const over = [first("release"), first("exit"), lost].filter((event) => event !== null);
  const endMs = over.length === 0 ? null : Math.min(...over.map(({ t }) => t));
  const deadlines = events.filter((event) => event.kind === "extended" || event.kind === "grant")
    .map((event) => event.deadlineMs).filter((deadlineMs) => deadlineMs !== null);
  const deadlineMs = deadlines.length === 0 ? null : Math.max(...deadlines);
  const base = {
    id,
    deadlineMs,
    ask: first("ask"),
    grant,
    refused: first("refused"),
    writes,
    endMs,
    status: first("exit")?.status ?? null,
    lostWhy: lost,
  };
  return { ...base, spans: grant === null ? [] : spansOf(grant, base, events, goneMs) };
}

function spansOf(
  grant: EventOf<"grant">,
  attempt: Pick<Attempt, "writes" | "endMs" | "status">,
  events: readonly OfAttempt[],
  goneMs: number | null,
): Span[] {
  // A process that is killed may still do something between the note of the kill and the kill.
  const lastMs = Math.max(...events.map(lastMoment));
  const killedMs = goneMs === null ? Infinity : Math.max(goneMs, lastMs);
  const endMs = Math.min(attempt.endMs ?? Infinity, killedMs);
  if (grant.deadlineMs === null) {
    // It ends when nothing of it writes any more: what the log says, not what the wrapper says; but
    // a command that came to its end was there until then, or shortly before that was noted.
    const ran = attempt.status === 0 ? attempt.endMs! - EXIT_LATE_MS : grant.t;
    const writtenMs = Math.max(grant.t, ran, ...attempt.writes.map(lastMoment));
    return [{ fromMs: grant.t, toMs: writtenMs }];
  }
  const spans: Span[] = [];
  let fromMs = grant.t;
  let deadlineMs = grant.deadlineMs;
  for (const event of events) {
    if (event.kind !== "extended" || event.t >= endMs) continue;
    if (event.t > deadlineMs) {
      // It knew nothing for a while, and stopped; then it heard that the lease had gone on.
      spans.push({ fromMs, toMs: deadlineMs });
      fromMs = event.t;
    }
    deadlineMs = Math.max(deadlineMs, event.deadlineMs);
  }
  spans.push({ fromMs, toMs: Math.max(fromMs, Math.min(deadlineMs, endMs)) });
  return spans;
}

function lastMoment(event: OfAttempt): number {
  return event.kind === "written" ? event.doneMs ?? event.t : event.t;
}
