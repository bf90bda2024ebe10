/**
 * Other processes, as `/proc` shows them.
 * @module
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { codeOf } from "./errno.ts";

/** A stat line has at most 52 numbers and a name of 64 bytes. One buffer: reads do not overlap. */
const buffer = Buffer.alloc(2_048);

/** A process that has a number now. */
export interface ProcessState {
  /** In clock ticks since boot (field 22 of `/proc/PID/stat`). */
  readonly startTime: number;
  /** Whether it has ended, and only its exit status waits for its parent. */
  readonly ended: boolean;
}

/** The process of that number; null when there is none, or it is hidden from us. */
export function processState(pid: number): ProcessState | null {
  if (!Number.isSafeInteger(pid) || pid <= 0) return null;
  let fd: number;
  try {
    fd = openSync(`/proc/${pid}/stat`, "r");
  } catch {
    return null;
  }
  try {
    return parseStat(buffer.toString("latin1", 0, readSync(fd, buffer, 0, buffer.byteLength, 0)));
  } catch {
    return null; // ESRCH: it ended between the open and the read
  } finally {
    closeSync(fd);
  }
}

/** Reads a line of `/proc/PID/stat`; null if it is none. */
export function parseStat(stat: string): ProcessState | null {
  const fields = statFields(stat);
  const startTime = Number(fields[19]);
  return Number.isSafeInteger(startTime) ? { startTime, ended: hasEnded(fields) } : null;
}

/** The fields of a line of `/proc/PID/stat` from the third on: state, parent, group, session, … */
export function statFields(stat: string): string[] {
  // The command, in parentheses, may itself hold spaces and parentheses: fields go on after the last.
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** Whether the process of these fields has ended, and only its exit status waits for its parent. */
export function hasEnded(fields: readonly string[]): boolean {
  const [state, threads] = [fields[0], Number(fields[17])];
  // A main thread that ended while others run shows as Z as well: that process still lives.
  return (state === "Z" || state === "X") && threads <= 1;
}

/**
 * When a process started, in clock ticks since boot. Together with the boot's id it tells a process
 * from a later one that was given the same number. Null when no such process runs, or it is hidden
 * from us.
 */
export function processStartTime(pid: number): number | null {
  const state = processState(pid);
  return state && !state.ended ? state.startTime : null;
}

/** Whether some process has this number, even one that `/proc` hides from us. */
export function processExists(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== "ESRCH";
  }
}

/** What a process runs, for people: its arguments, else its name in brackets; null if not to be seen. */
export function commandOf(pid: number): string | null {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").join(" ").trim();
    // deno-lint-ignore no-control-regex -- a command line may hold anything, a message may not
    const line = words.replace(/[\x00-\x1f\x7f]/g, "?").slice(0, 200);
    return line || `[${readFileSync(`/proc/${pid}/comm`, "utf8").trim()}]`;
  } catch {
    return null;
  }
}

/** The id of this boot of the machine: another value means that every process is another one. */
export function bootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}

/** The id of this installation of the machine; empty where there is none, as in many containers. */
export function machineId(): string {
  try {
    return readFileSync("/etc/machine-id", "utf8").trim();
  } catch {
    return "";
  }
}
