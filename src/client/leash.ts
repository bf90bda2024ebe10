/**
 * A program that must not outlive what it runs under: with all that it starts, it is in a process
 * group of its own, and that group is ended as a whole.
 * @module
 */
import { Buffer } from "node:buffer";
import { type ChildProcess, spawn } from "node:child_process";
import process from "node:process";
import { agentError } from "./errors.ts";

/** What to run. */
export interface LeashOptions {
  readonly executable: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  readonly env: Readonly<Record<string, string>>;
  /** What the program reads from its standard input; default: nothing. */
  readonly input?: string | Uint8Array;
  /** Whether a group that its starter leaves behind is killed. */
  readonly watched: boolean;
  /** The agent's executable, by way of which the program gets the lock of the grant; null for none. */
  readonly lockPasser: string | null;
}

/** How a program ended, and what it wrote. */
export interface Ended {
  readonly status: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Is told the group, and kills it unless it is told that it need not: the end of its input means that
 * whoever started it is gone, by SIGKILL, too. It is started first, so that the program never runs
 * without it for longer than a turn of the event loop, in which it is told the group. In plain shell,
 * because it must be there wherever this is.
 */
const WATCHDOG = 'read -r group || exit; read -r done || kill -KILL "-$group" 2>/dev/null';

/** Where what could not be run says why; the program itself does not get it. */
const REPORT_FD = 3;

/** A running program. */
export class Leash {
  /** Rejects if the program cannot be run. */
  readonly ended: Promise<Ended>;
  readonly #child: ChildProcess;
  readonly #watchdog: ChildProcess | null;

  constructor({ executable, args, cwd, env, input, watched, lockPasser }: LeashOptions) {
    this.#watchdog = watched ? startWatchdog() : null;
    const command = [executable, ...args];
    const [program, ...rest] = lockPasser === null
      ? command
      : [lockPasser, "exec-locked", "--report", String(REPORT_FD), "--", ...command];
    const stdin = input === undefined ? "ignore" : "pipe";
    this.#child = spawn(program!, rest, {
      cwd,
      env: { ...env },
      detached: true,
      stdio: [stdin, "pipe", "pipe", ...(lockPasser === null ? [] : ["pipe" as const])],
    });
    if (this.#child.pid !== undefined) this.#watchdog?.stdin?.write(`${this.#child.pid}\n`);
    // A program that does not read its input is none of our business.
    this.#child.stdin?.on("error", () => {});
    this.#child.stdin?.end(input);
    this.ended = this.#wait();
  }

  /** Sends a signal to the whole group; no harm where it is gone. */
  signal(signal: "SIGTERM" | "SIGKILL"): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // Nobody is left.
    }
  }

  #wait(): Promise<Ended> {
    const stdout = collect(this.#child.stdout!);
    const stderr = collect(this.#child.stderr!);
    const report = this.#child.stdio[REPORT_FD];
    // What the agent's executable says if it does not become the program; nothing if it does.
    const failure = report ? collect(report as NodeJS.ReadableStream) : () => "";
    return new Promise((resolve, reject) => {
      this.#child.once("error", (error) => {
        this.#letGo();
        reject(error);
      });
      // Once the outputs are closed, too: whoever still has them belongs to the group.
      this.#child.once("close", (status, signal) => {
        this.#letGo();
        const told = failure();
        if (told !== "") return reject(failed(told));
        resolve({ status, signal, stdout: stdout(), stderr: stderr() });
      });
    });
  }

  /** The group is over, or never was: its number may be somebody else's soon. */
  #letGo(): void {
    this.#watchdog?.stdin?.end("done\n");
  }
}

/** The error in a report: the agent's refusal, or why the program cannot be run. */
function failed(report: string): Error {
  const error = JSON.parse(report);
  return error.data === undefined ? new Error(error.message) : agentError(error);
}

function startWatchdog(): ChildProcess {
  const watchdog = spawn("/bin/sh", ["-c", WATCHDOG], {
    // Out of reach of what a terminal sends to its foreground group.
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  watchdog.on("error", () => {}); // told by the caller's end alone, then
  watchdog.stdin!.on("error", () => {});
  return watchdog;
}

function collect(stream: NodeJS.ReadableStream): () => string {
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString();
}
