/**
 * How much processor time a process uses: a busy loop shows.
 * @module
 */
import { readFileSync } from "node:fs";

/** Clock ticks a second in /proc, on every Linux that Debian builds for. */
const TICKS_PER_S = 100;

/** Processor time used so far, in milliseconds. */
export function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // After the name, which may hold blanks: state is field 3, utime 14, stime 15.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * (1_000 / TICKS_PER_S);
}
