/**
 * The seam to the daemon: the command line calls {@linkcode startAgent} and knows nothing else of it.
 * @module
 */
import type { RunOptions } from "./cli/run_options.ts";

/** Runs the agent until it is told to stop; the result is the exit status. */
export function startAgent(_options: RunOptions): Promise<number> {
  return Promise.reject(new Error("this build has no daemon"));
}
