/**
 * Checks a saved history: `bun test/chaos/check.ts HISTORY [--timeline FILE]`. Prints what is wrong,
 * and `grants=N overlaps=N stuck=N` as the last line; exit status 1 if anything is wrong, 65 if there is
 * no history to check.
 * @module
 */
import { readFileSync, writeFileSync } from "node:fs";
import { check, summary, type Verdict } from "./checker.ts";
import type { Event } from "./history.ts";
import { HistoryError, parseHistory } from "./reading.ts";
import { describe } from "./regressions.ts";
import { drawTimeline } from "./timeline.ts";

/** Exit statuses as in sysexits.h. */
const EX_USAGE = 64;
const EX_DATAERR = 65;
const EX_CANTCREAT = 73;

/** Violations printed in full; a broken run has thousands. */
const MAX_PRINTED = 50;

/** Prints a verdict for a person; the last line is for programs. */
export function report(verdict: Verdict): void {
  const { violations, regressions, refusals, recoveriesMs, writes } = verdict;
  for (const each of regressions) {
    console.log(`coordinator at ${(each.t / 1_000).toFixed(3)}: ${describe(each)}`);
  }
  for (const { rule, t, message } of violations.slice(0, MAX_PRINTED)) {
    console.log(`${rule} at ${(t / 1_000).toFixed(3)}: ${message}`);
  }
  if (violations.length > MAX_PRINTED) console.log(`… and ${violations.length - MAX_PRINTED} more`);
  const kinds = Object.entries(refusals).sort(([, a], [, b]) => b - a);
  console.log(`writes=${writes} ${kinds.map(([kind, count]) => `${kind}=${count}`).join(" ")}`);
  const sorted = [...recoveriesMs].sort((a, b) => a - b);
  if (sorted.length > 0) {
    const median = sorted[sorted.length >> 1];
    console.log(
      `recoveries=${sorted.length} median=${median.toFixed(0)}ms max=${
        sorted.at(-1)!.toFixed(0)
      }ms`,
    );
  }
  console.log(summary(verdict));
}

/** Ends with a message for a person. */
function fail(status: number, message: string): never {
  console.error(`chaos: ${message}`);
  process.exit(status);
}

/** The history in a file, and what it amounts to. */
function judge(path: string): { events: Event[]; verdict: Verdict } {
  try {
    const events = parseHistory(readFileSync(path, "utf8"));
    return { events, verdict: check(events) };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== undefined) fail(EX_DATAERR, `Cannot read the history: ${message}`);
    if (error instanceof HistoryError) fail(EX_DATAERR, `Cannot check ${path}: ${message}`);
    throw error;
  }
}

if (import.meta.main) {
  const [path, flag, timeline, ...rest] = process.argv.slice(2);
  const known = flag === undefined || (flag === "--timeline" && timeline && rest.length === 0);
  if (path === undefined || path.startsWith("--") || !known) {
    fail(EX_USAGE, "usage: scripts/chaos --check HISTORY [--timeline FILE.svg]");
  }
  const { events, verdict } = judge(path);
  report(verdict);
  if (timeline !== undefined) {
    try {
      writeFileSync(timeline, drawTimeline(events, verdict));
    } catch (error) {
      fail(EX_CANTCREAT, `Cannot draw the timeline: ${(error as Error).message}`);
    }
  }
  process.exit(verdict.violations.length > 0 ? 1 : 0);
}
