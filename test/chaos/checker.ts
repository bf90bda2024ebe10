/**
 * Judges a history: was there ever more than one writer, did epochs go back, was every write made
 * under a live grant, was every refusal true, and came every store back in time.
 *
 * It knows the history alone, so that a saved one can be checked again, by a newer checker too.
 * @module
 */
import { checkAccounts } from "./accounts.ts";
import { checkAnswers } from "./answers.ts";
import { Causes } from "./causes.ts";
import { checkDeadlines } from "./deadlines.ts";
import { findGaps, findUnanswered, findUnrecovered } from "./duties.ts";
import { Exemptions } from "./exemptions.ts";
import { checkGraces } from "./graces.ts";
import type { Event, EventOf } from "./history.ts";
import { findOverlaps } from "./overlaps.ts";
import { HistoryError } from "./reading.ts";
import { checkRefusals } from "./refusals.ts";
import type { Regression } from "./regressions.ts";
import { type Attempt, attemptsOf } from "./sections.ts";
import { checkTenures } from "./tenures.ts";
import { checkWrites } from "./writes.ts";

/** What must not be; docs/faults.md tells when it is. */
export type Rule =
  | "overlap"
  | "epoch"
  | "write"
  | "deadline"
  | "verify"
  | "tenure"
  | "grace"
  | "answer"
  | "refusal"
  | "stuck"
  | "history";

/** What two writers at once are, or come from: epochs that go back, writes under no grant, … */
const OVERLAPS: readonly Rule[] = [
  "overlap",
  "epoch",
  "write",
  "deadline",
  "verify",
  "tenure",
  "grace",
];

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
  /** Where the coordinator lost its past: told, and not the agents' fault. */
  readonly regressions: readonly Regression[];
  /** Refusals by kind. */
  readonly refusals: Readonly<Record<string, number>>;
  /** How long after each calm each store was granted again, in milliseconds. */
  readonly recoveriesMs: readonly number[];
}

/**
 * Judges a history, which is sorted by time.
 *
 * @throws {HistoryError} if it is not, or does not say first, and once, what the run promised.
 */
export function check(events: readonly Event[]): Verdict {
  const setup = setupOf(events);
  const attempts = [...attemptsOf(events).values()];
  const recoveriesMs: number[] = [];
  const exemptions = new Exemptions(events, setup);
  const causes = new Causes(events, setup);
  const stuck = [
    ...findUnrecovered(events, setup, recoveriesMs),
    ...findUnanswered(events, attempts),
  ];
  const violations = [
    ...findOverlaps(attempts, exemptions),
    ...checkWrites(events, attempts, exemptions),
    ...checkDeadlines(events, attempts, { setup, exemptions }),
    ...checkGraces(events, attempts, exemptions),
    ...checkTenures(events, { exemptions, causes }),
    ...checkRefusals(events, attempts, { setup, causes, exemptions }),
    ...checkAnswers(attempts, causes),
    ...stuck,
    ...findGaps(events),
    ...checkAccounts(events, setup),
  ].sort((a, b) => a.t - b.t);
  return {
    grants: attempts.filter(({ grant }) => grant !== null).length,
    writes: events.filter(({ kind }) => kind === "written").length,
    overlaps: violations.filter(({ rule }) => OVERLAPS.includes(rule)).length,
    stuck: stuck.length,
    violations,
    regressions: exemptions.regressions,
    refusals: countRefusals(attempts),
    recoveriesMs,
  };
}

/** What the run promised; the whole is refused where it was not put in order, and is not all of one. */
function setupOf(events: readonly Event[]): EventOf<"setup"> {
  const [setup, ...more] = events.filter((event) => event.kind === "setup");
  if (setup === undefined) throw new HistoryError("there is no setup line in it");
  if (more.length > 0) throw new HistoryError("there is more than one setup line in it");
  if (setup !== events[0]) throw new HistoryError("it does not begin with its setup line");
  const early = events.findIndex(({ t }, index) => index > 0 && t < events[index - 1].t);
  if (early !== -1) {
    throw new HistoryError(`event ${early + 1} is of an earlier time than the last`);
  }
  return setup;
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
