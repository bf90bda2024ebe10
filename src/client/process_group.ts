/**
 * The process group of a program that was started here: what of it still runs, and its end.
 * @module
 */
import type { ChildProcess } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import process from "node:process";
import type { Watchdog } from "./watchdog.ts";

/** How often to look whether anybody is left. */
const LOOK_EVERY_MS = 20;
/** SIGKILL goes out so long before a deadline, so that it is over by then. */
const KILL_BEFORE_MS = 20;
/** Killed processes end at once, unless the kernel holds them: a disk that hangs. */
const KILLED_WITHIN_MS = 2_000;

/** All processes that a program started and that did not leave its group. */
export class ProcessGroup {
  readonly #child: ChildProcess;
  readonly #watchdog: Watchdog | null;

  constructor(child: ChildProcess, watchdog: Watchdog | null) {
    this.#child = child;
    this.#watchdog = watchdog;
  }

  /**
   * Ends all: SIGTERM, and SIGKILL after `killAfterMs` and before `msLeft()` is 0. Resolves when nobody is
   * left; with false if somebody is, because not even SIGKILL ends it.
   */
  async end(killAfterMs: number, msLeft: () => number): Promise<boolean> {
    // Fixed: who was asked to end is not asked again, though the lease may be renewed after all.
    const killAtMs = performance.now() + Math.min(killAfterMs, msLeft());
    let killedAtMs: number | null = null;
    await this.#send("TERM");
    while (!await this.isEmpty()) {
      const nowMs = performance.now();
      if (killedAtMs === null && (nowMs >= killAtMs || msLeft() <= KILL_BEFORE_MS)) {
        killedAtMs = nowMs;
        await this.#send("KILL");
      }
      if (killedAtMs !== null && nowMs >= killedAtMs + KILLED_WITHIN_MS) return false;
      const toKillMs = Math.min(killAtMs - nowMs, msLeft() - KILL_BEFORE_MS);
      const pauseMs = killedAtMs === null ? Math.min(LOOK_EVERY_MS, toKillMs) : LOOK_EVERY_MS;
      await new Promise((resolve) => setTimeout(resolve, Math.max(1, pauseMs)));
    }
    return true;
  }

  /** Whether nobody runs any more. */
  async isEmpty(): Promise<boolean> {
    const { pid } = this.#child;
    if (pid === undefined || this.#signal(0) === false) return true;
    const runs = hasMembers(pid) ?? await this.#watchdog?.send("0") ?? !this.#ended;
    return !runs;
  }

  async #send(word: "TERM" | "KILL"): Promise<void> {
    const reached = this.#signal(`SIG${word}`) ?? await this.#watchdog?.send(word) ?? null;
    if (reached === null && !this.#ended) this.#child.kill(`SIG${word}`);
  }

  /** Sends a signal to all; whether there was anybody. Null where this process is not permitted to. */
  #signal(signal: "SIGTERM" | "SIGKILL" | 0): boolean | null {
    const { pid } = this.#child;
    if (pid === undefined) return false;
    try {
      // While anybody is in the group, the kernel gives its number to nobody else. The program itself
      // was waited for: who has that number now is a stranger, and so is the group.
      if (this.#ended && exists(pid)) return false;
      process.kill(-pid, signal);
      return true;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ESRCH") return false;
      // Another user's; or else Deno, which permits signals only where all programs may be run.
      return code === "EPERM" ? true : null;
    }
  }

  /** Whether the program itself has ended and was waited for. */
  get #ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ESRCH") return false;
    if (code === "EPERM") return true;
    throw error;
  }
}

/**
 * Whether a process of the group runs, by what the system says of all. One that has ended stays in the
 * group until its parent waits for it, which some never do. Null where it cannot be read.
 */
function hasMembers(group: number): boolean | null {
  const runs = (pid: string) => {
    const [state, , itsGroup] = /^\d+$/.test(pid) ? statOf(pid) : [];
    return itsGroup === String(group) && state !== "Z" && state !== "X";
  };
  try {
    // Twice: one that forks and ends while it is looked for shows neither itself nor its child.
    return readdirSync("/proc").some(runs) || readdirSync("/proc").some(runs);
  } catch {
    return null;
  }
}

/** State, parent, group, …: what follows the name, which may contain anything. */
function statOf(pid: string): string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return []; // it has ended
  }
}
