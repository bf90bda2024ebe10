/** The watchdog of a guarded command. */
import { readFileSync } from "node:fs";

/** The one child of the wrapper that is not of `others`. */
export function watchdogOf(wrapper: number, others: readonly number[]): number {
  const text = readFileSync(`/proc/${wrapper}/task/${wrapper}/children`, "latin1").trim();
  const watchdogs = text.split(" ").map(Number).filter((child) => !others.includes(child));
  if (watchdogs.length !== 1) throw new Error(`not one watchdog: ${watchdogs}`);
  return watchdogs[0];
}
