/** Processes that tests have started, or had started. */
import { existsSync, readFileSync } from "node:fs";
import { until } from "./wait.ts";

/** Whether a process of that number runs: exists, and is no more than waiting to be reaped. */
export function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false;
  }
}

/** The number that a process wrote to a file, once it is there. */
export function pidIn(file: string): Promise<number> {
  return until(
    `a pid is in ${file}`,
    () => existsSync(file) && Number(readFileSync(file, "utf8")) || undefined,
  );
}
