/**
 * Other processes, as `/proc` shows them.
 * @module
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { codeOf } from "./errno.ts";

const buffer = Buffer.alloc(1_024);

/**
 * When a process started, in clock ticks since boot (field 22 of `/proc/PID/stat`). Together with
 * the boot's id it tells a process from a later one that was given the same number. Null when
 * there is no such process, or only what its parent has yet to reap, or it is hidden from us.
 */
export function processStartTime(pid: number): number | null {
  if (!Number.isSafeInteger(pid) || pid <= 0) return null;
  let fd: number;
  try {
    fd = openSync(`/proc/${pid}/stat`, "r");
  } catch {
    return null;
  }
  try {
    return startTimeIn(buffer.toString("latin1", 0, readSync(fd, buffer, 0, buffer.byteLength, 0)));
  } catch {
    return null; // ESRCH: it ended between the open and the read
  } finally {
    closeSync(fd);
  }
}

/** Reads the start time out of a stat line; null for a process that has ended but is not reaped. */
function startTimeIn(stat: string): number | null {
  // The command, in parentheses, may itself hold spaces and parentheses: fields go on after the last.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, threads, startTime] = [fields[0], Number(fields[17]), Number(fields[19])];
  // A main thread that ended while others run shows as Z as well: that process still lives.
  if ((state === "Z" || state === "X") && threads <= 1) return null;
  return Number.isSafeInteger(startTime) ? startTime : null;
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
