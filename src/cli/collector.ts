/**
 * The garbage collector as an agent needs it: most of what it makes is a hold's next state, which
 * lives for a renewal interval, long enough to be taken for lasting. What lasts is collected only when
 * little room is left, by default a third of what there may be; so an agent with 100,000 stores
 * went up to half as much again as it needs (docs/performance.md, "Memory").
 *
 * The engine takes its options from the environment alone, before a program's first line. So the
 * program becomes itself once more, with the same number, arguments and descriptors: 10 ms of the start.
 * @module
 */
import { tryBecomeProgram } from "../sys/job.ts";

/** After a quick collection that leaves less room than this part of all, everything is collected. */
const VARIABLE = "BUN_JSC_minEdenToOldGenerationRatio";
const VALUE = "0.65";

/**
 * Starts the program anew with the collector set, unless it is set in `env`: then this is the second
 * start, or somebody knows better. Where it cannot be done the agent goes on, with more memory.
 */
export function tuneCollector(env: Readonly<Record<string, string | undefined>>): void {
  // From its sources it is the runtime that would be started.
  if (env[VARIABLE] !== undefined || !Bun.main.startsWith("/$bunfs/")) return;
  const variables = Object.entries({ ...env, [VARIABLE]: VALUE });
  tryBecomeProgram({
    path: Buffer.from(process.execPath),
    argv: [process.argv0, ...process.argv.slice(2)].map((text) => Buffer.from(text)),
    env: variables.map(([name, value]) => Buffer.from(`${name}=${value}`)),
  });
}
