/**
 * The deadlines that clients were told: none later than a proof allows that was sent before, none
 * earlier than the proof that was asked for, and none for a grant that is over.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Exemptions } from "./exemptions.ts";
import type { Event, EventOf } from "./history.ts";
import { type Attempt, validityMs } from "./sections.ts";

/** Times are noted to a microsecond, and a verify's remaining time is told in whole milliseconds. */
const ROUNDING_MS = 1;

/** What a verify may say of a grant that is over. */
const OVER = ["lost", "no_token", "unavailable"];

/** Ends that a client came to by itself: what its agent thinks of the grant is not known. */
const OWN_ENDS = ["deadline", "unverified"];

type Told = EventOf<"grant"> | EventOf<"extended">;

/** What is wrong with deadlines, and with what was verified. */
export function checkDeadlines(
  events: readonly Event[],
  attempts: readonly Attempt[],
  { setup: { ttlMs }, exemptions }: { setup: EventOf<"setup">; exemptions: Exemptions },
): Violation[] {
  const byId = new Map(attempts.map((attempt) => [attempt.id, attempt]));
  const newest = new Map<string, number>();
  return events.flatMap((event) => {
    const wrong = (rule: "deadline" | "verify", { id }: Attempt, message: string): Violation[] => [
      { rule, t: event.t, message: `${id} on ${nodeOf(byId.get(id)!)} ${message}` },
    ];
    if (event.kind === "afterwards") {
      const attempt = byId.get(event.id)!;
      const message = wrongAfterwards(event, attempt);
      return message === null ? [] : wrong("verify", attempt, message);
    }
    if (event.kind !== "grant" && event.kind !== "extended") return [];
    const attempt = byId.get(event.id)!;
    if (event.deadlineMs === null) return [];
    const older = exemptions.isOlder(nodeOf(attempt));
    const validMs = validityMs(ttlMs, older);
    const overMs = event.deadlineMs - (event.t + validMs);
    if (overMs > ROUNDING_MS) {
      const what =
        `was told a deadline ${overMs.toFixed(0)} ms later than a proof allows that was ` +
        "sent before it was told";
      return wrong("deadline", attempt, what);
    }
    const { endMs } = attempt;
    if (event.kind === "extended" && endMs !== null && event.t > endMs) {
      return wrong(
        "verify",
        attempt,
        `had a ${event.by} ${(event.t - endMs).toFixed(0)} ms after its end`,
      );
    }
    if (event.kind === "extended" && event.sentMs !== undefined) {
      const { sentMs, t } = event;
      const grantedMs = attempt.grant?.t ?? Infinity;
      if (sentMs > t + ROUNDING_MS || sentMs < grantedMs - ROUNDING_MS) {
        return wrong("verify", attempt, "was verified by what was sent before its grant, or later");
      }
    }
    const leastMs = leastOf(event, attempt, { validMs, older, newestMs: newest.get(event.id) });
    // A verify's is counted from the question, and so may be the lower one.
    if (event.kind === "grant" || event.by === "renewed") newest.set(event.id, event.deadlineMs);
    const underMs = leastMs - event.deadlineMs;
    if (underMs <= ROUNDING_MS) return [];
    return wrong("deadline", attempt, `was told a deadline ${underMs.toFixed(0)} ms too early`);
  });
}

function nodeOf({ ask, grant }: Attempt): string {
  return grant?.node ?? ask?.node ?? "no node";
}

/** What a deadline is at least: its proof was sent after it was asked for, and what is renewed grows. */
function leastOf(
  event: Told,
  { ask, grant }: Attempt,
  { validMs, older, newestMs = -Infinity }: {
    readonly validMs: number;
    readonly older: boolean;
    readonly newestMs?: number;
  },
): number {
  if (event.kind === "grant") return ask === null || older ? -Infinity : ask.t + validMs;
  if (event.by === "renewed") return newestMs;
  // From the question on; what it told was left when it was answered, at the latest when it was noted.
  const sentMs = event.sentMs ?? grant?.t ?? -Infinity;
  return sentMs + validMs - (event.t - sentMs) - ROUNDING_MS;
}

/** A token is unknown once it was released, and no good once its lease was said to be lost. */
function wrongAfterwards(
  { released, answer }: EventOf<"afterwards">,
  { lostWhy }: Attempt,
): string | null {
  if (released) {
    return answer === "no_token" ? null : `was released, and a verify answered with ${answer}`;
  }
  if (lostWhy === null) return `was verified after it was lost, which it was not`;
  const known = OWN_ENDS.includes(lostWhy.why) ? [...OVER, "ok"] : OVER;
  return known.includes(answer)
    ? null
    : `was lost (${lostWhy.why}), and a verify answered with ${answer}`;
}
