/**
 * Deadlines as clients were told them: none is later than a TTL after its proof can have been sent.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Exemptions } from "./exemptions.ts";
import type { Event, EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

/** What agents keep of a TTL for clocks that run at different rates. The older program keeps nothing. */
const SKEW_MARGIN = 0.02;

/** Times are noted to a microsecond, and a verify's remaining time is told in whole milliseconds. */
const ROUNDING_MS = 1;

/** Deadlines that are too late, whenever their proof was sent: it was before they were told. */
export function checkDeadlines(
  events: readonly Event[],
  attempts: readonly Attempt[],
  { setup: { ttlMs }, exemptions }: { setup: EventOf<"setup">; exemptions: Exemptions },
): Violation[] {
  const nodes = new Map(attempts.map(({ id, grant }) => [id, grant?.node ?? ""]));
  return events.filter((event) => event.kind === "grant" || event.kind === "extended")
    .flatMap(({ id, t, deadlineMs }) => {
      if (deadlineMs === null) return [];
      const node = nodes.get(id)!;
      const validMs = exemptions.isOlder(node) ? ttlMs : ttlMs * (1 - SKEW_MARGIN);
      const overMs = deadlineMs - (t + validMs);
      if (overMs <= ROUNDING_MS) return [];
      const message = `${id} on ${node} was told a deadline ${overMs.toFixed(0)} ms later than a ` +
        "proof allows that was sent before it was told";
      return [{ rule: "deadline", t, message } as const];
    });
}
