/**
 * Judges a history: was there ever more than one writer, did epochs go back, was every write made
 * under a live grant, was every refusal true, and came every store back in time.
 *
 * It knows the history alone, so that a saved one can be checked again, by a newer checker too.
 * @module
 */
import { checkDeadlines } from "./deadlines.ts";
import { findGaps, findUnanswered, findUnrecovered } from "./duties.ts";
import { Exemptions } from "./exemptions.ts";
import { checkGraces } from "./graces.ts";
import type { Event } from "./history.ts";
import { findOverlaps } from "./overlaps.ts";
import { HistoryError } from "./reading.ts";
import { checkRefusals } from "./refusals.ts";
import { type Attempt, attemptsOf } from "./sections.ts";
import { checkWrites } from "./writes.ts";

/** What must not be; docs/faults.md tells when it is. */
export type Rule =
  | "overlap"
  | "epoch"
  | "write"
  | "deadline"
  | "grace"
  | "refusal"
  | "stuck"
  | "history";

/** What two writers at once are, or come from: epochs that go back, writes under no grant, … */
const OVERLAPS: readonly Rule[] = ["overlap", "epoch", "write", "deadline", "grace"];

/** Something that must not be. */
export interface Violation {
  readonly rule: Rule;
  readonly t: number;
  readonly message: string;
}

/** What a history amounts to. */
export interface Verdict {
  readonly grants: number;
  readonly writes: number;
  readonly overlaps: number;
  readonly stuck: number;
  readonly violations: readonly Violation[];
  /** Refusals by kind. */
  readonly refusals: Readonly<Record<string, number>>;
  /** How long after each calm each store was granted again, in milliseconds. */
  readonly recoveriesMs: readonly number[];
}

/**
 * Judges a history, sorted by time.
 *
 * @throws {HistoryError} if it does not say what the run promised.
 */
export function check(events: readonly Event[]): Verdict {
  const setup = events.find((event) => event.kind === "setup");
  if (setup === undefined) throw new HistoryError("there is no setup line in it");
  const attempts = [...attemptsOf(events).values()];
  const recoveriesMs: number[] = [];
  const exemptions = new Exemptions(events, setup);
  const stuck = [
    ...findUnrecovered(events, setup, recoveriesMs),
    ...findUnanswered(events, attempts),
  ];
  const violations = [
    ...findOverlaps(attempts, exemptions),
    ...checkWrites(events, attempts, exemptions),
    ...checkDeadlines(events, attempts, { setup, exemptions }),
    ...checkGraces(events, attempts, exemptions),
    ...checkRefusals(events, attempts, setup),
    ...stuck,
    ...findGaps(events),
  ].sort((a, b) => a.t - b.t);
  return {
    grants: attempts.filter(({ grant }) => grant !== null).length,
    writes: events.filter(({ kind }) => kind === "written").length,
    overlaps: violations.filter(({ rule }) => OVERLAPS.includes(rule)).length,
    stuck: stuck.length,
    violations,
    refusals: countRefusals(attempts),
    recoveriesMs,
  };
}

/** The last line of a run. */
export function summary({ grants, overlaps, stuck }: Verdict): string {
  return `grants=${grants} overlaps=${overlaps} stuck=${stuck}`;
}

function countRefusals(attempts: readonly Attempt[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { refused, lostWhy } of attempts) {
    for (const why of [refused?.why, lostWhy && `lost (${lostWhy.why})`]) {
      if (why) counts[why] = (counts[why] ?? 0) + 1;
    }
  }
  return counts;
}
