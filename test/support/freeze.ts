/** Standing still. */
import { readdirSync, readFileSync } from "node:fs";

/** Stops a process where it is; returns when each of its threads stands. */
export function freezeProcess(pid: number): void {
  process.kill(pid, "SIGSTOP");
  // The signal reaches a thread that runs only when that next enters the kernel.
  while (!readdirSync(`/proc/${pid}/task`).every((thread) => stands(pid, thread))) Bun.sleepSync(1);
}

/**
 * Kills these processes as one: each stands before the first of them ends, so that none notices the end of
 * another. A wrapper starts its watchdog again, and a watchdog ends its wrapper's command.
 */
export function killTogether(pids: readonly number[]): void {
  pids.forEach(freezeProcess);
  for (const pid of pids) process.kill(pid, "SIGKILL");
}

function stands(pid: number, thread: string): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "latin1");
    return /^[tTZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false; // it has just ended: another look tells which there are
  }
}
