/** Standing still. */
import { readdirSync, readFileSync } from "node:fs";

/** Stops a process where it is; returns when each of its threads stands. */
export function freezeProcess(pid: number): void {
  process.kill(pid, "SIGSTOP");
  // The signal reaches a thread that runs only when that next enters the kernel.
  const stands = (thread: string) => {
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "latin1");
    return /^[tTZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  };
  while (!readdirSync(`/proc/${pid}/task`).every(stands)) Bun.sleepSync(1);
}
