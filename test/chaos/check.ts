/**
 * Checks a saved history: `bun test/chaos/check.ts HISTORY [--timeline FILE]`. Prints what is wrong,
 * and `grants=N overlaps=N stuck=N` as the last line; exit status 1 if anything is wrong.
 * @module
 */
import { readFileSync, writeFileSync } from "node:fs";
import { check, summary, type Verdict } from "./checker.ts";
import { parseHistory } from "./history.ts";
import { drawTimeline } from "./timeline.ts";

/** Violations printed in full; a broken run has thousands. */
const MAX_PRINTED = 50;

/** Prints a verdict for a person; the last line is for programs. */
export function report(verdict: Verdict): void {
  const { violations, refusals, recoveriesMs, writes } = verdict;
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

if (import.meta.main) {
  const [path, flag, timeline] = process.argv.slice(2);
  if (path === undefined || (flag !== undefined && (flag !== "--timeline" || !timeline))) {
    console.error("usage: bun test/chaos/check.ts HISTORY [--timeline FILE]");
    process.exit(64);
  }
  const events = parseHistory(readFileSync(path, "utf8"));
  const verdict = check(events);
  if (timeline !== undefined) writeFileSync(timeline, drawTimeline(events, verdict));
  report(verdict);
  process.exit(verdict.violations.length > 0 ? 1 : 0);
}
