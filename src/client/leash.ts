/**
 * A program that must not outlive what it runs under: with all that it starts, it is in a process
 * group of its own, and that group is ended as a whole.
 * @module
 */
import { Buffer } from "node:buffer";
import { type ChildProcess, spawn } from "node:child_process";
import { AgentError, agentError, MisconfiguredError } from "./errors.ts";
import { ProcessGroup } from "./process_group.ts";
import type { Program } from "./token.ts";
import type { Watchdog } from "./watchdog.ts";

/** What to run. */
export interface LeashOptions {
  readonly executable: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  readonly env: Readonly<Record<string, string>>;
  /** What the program reads from its standard input; default: nothing. */
  readonly input?: string | Uint8Array;
  /** Who kills a group that its starter leaves behind; null for nobody. */
  readonly watchdog: Watchdog | null;
  /** The agent's executable, by way of which the program gets the lock of the grant; null for none. */
  readonly lockPasser: string | null;
  /** How long it has to end when it is asked to. */
  readonly killAfterMs: number;
}

/** How a program ended, and what it wrote. */
export interface Ended {
  readonly status: number | null;
  readonly signal: string | null;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
}

/** Where what could not be run says why; the program itself does not get it. */
const REPORT_FD = 3;
/** How often to look whether what a program left behind has ended. */
const LOOK_EVERY_MS = 250;
/** What is written already is read within that time, though somebody keeps the outputs open. */
const READ_WITHIN_MS = 250;

/** A running program. */
export class Leash implements Program {
  /** Rejects if the program cannot be run. */
  readonly ended: Promise<Ended>;
  readonly gone: Promise<void>;
  readonly #options: LeashOptions;
  readonly #child: ChildProcess;
  readonly #group: ProcessGroup;
  /** Settles {@linkcode ended} with what there is. */
  #settle = () => {};
  /** Resolves {@linkcode gone}. The group's number may be somebody else's soon. */
  #letGo = () => {};
  #ending: Promise<boolean> | null = null;
  #left = false;

  /** Starts the program. The watchdog is not told of one that cannot be: that stays the caller's. */
  constructor(options: LeashOptions) {
    const { executable, args, cwd, env, input, watchdog, lockPasser } = options;
    this.#options = options;
    const command = [executable, ...args];
    const [program, ...rest] = lockPasser === null
      ? command
      : [lockPasser, "exec-locked", "--report", String(REPORT_FD), "--", ...command];
    const stdin = input === undefined ? "ignore" : "pipe";
    try {
      this.#child = spawn(program!, rest, {
        cwd,
        env: { ...env },
        detached: true,
        stdio: [stdin, "pipe", "pipe", ...(lockPasser === null ? [] : ["pipe" as const])],
      });
    } catch (error) {
      throw startFailure(error as Error, options);
    }
    if (this.#child.pid !== undefined) watchdog?.watch(this.#child.pid);
    this.#group = new ProcessGroup(this.#child, watchdog);
    // A program that does not read its input is none of our business.
    this.#child.stdin?.on("error", () => {});
    this.#child.stdin?.end(input);
    this.ended = this.#wait();
    this.ended.catch(() => {}); // whoever waits is told
    this.gone = new Promise((resolve) => {
      this.#letGo = () => {
        watchdog?.dismiss();
        this.#letGo = () => {};
        resolve();
      };
    });
    this.#child.once("error", () => this.#letGo());
    this.#child.once("exit", () => void this.#look());
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  end(msLeft: () => number): Promise<boolean> {
    this.#ending ??= this.#end(msLeft);
    return this.#ending;
  }

  leave(): void {
    this.#left = true;
  }

  async #end(msLeft: () => number): Promise<boolean> {
    const nobodyIsLeft = await this.#group.end(this.#options.killAfterMs, msLeft);
    // Who left the group may keep the outputs open for ever.
    const timer = setTimeout(this.#settle, READ_WITHIN_MS);
    await this.ended.catch(() => {}); // told whoever started it
    clearTimeout(timer);
    if (nobodyIsLeft) this.#letGo();
    return nobodyIsLeft;
  }

  #wait(): Promise<Ended> {
    const child = this.#child;
    const outputs = [child.stdout!, child.stderr!].map(collect);
    const report = child.stdio[REPORT_FD] as NodeJS.ReadableStream | undefined;
    const reported = report ? collect(report) : null;
    return new Promise((resolve, reject) => {
      child.once("error", (error) => reject(startFailure(error, this.#options)));
      this.#settle = () => {
        const { exitCode: status, signalCode: signal } = child;
        const [stdout, stderr] = outputs.map((output) => output());
        for (const stream of [child.stdout, child.stderr, report]) {
          (stream as { destroy?: () => void } | undefined)?.destroy?.();
        }
        const failure = reported && failureIn(reported().toString(), status, this.#options);
        if (failure) reject(failure);
        else resolve({ status, signal, stdout: stdout!, stderr: stderr! });
      };
      // Once the outputs are closed, too: whoever still has them belongs to the program.
      child.once("close", this.#settle);
    });
  }

  /** The program has ended: lets go of its group when nobody is left in it, or nobody cares. */
  async #look(): Promise<void> {
    const cares = this.#options.watchdog !== null && !this.#left;
    if (!cares || await this.#group.isEmpty()) return this.#letGo();
    const timer = setTimeout(() => void this.#look(), LOOK_EVERY_MS);
    (timer as { unref?: () => void }).unref?.();
  }
}

/**
 * What went wrong on the way to the program, by the report of the agent's executable: the agent's refusal,
 * or why the program cannot be run. Right before it becomes the program, it says that it will.
 */
function failureIn(report: string, status: number | null, options: LeashOptions): Error | null {
  const said = report.split("\n").filter((line) => line !== "").map(parsed);
  const error = said.find((each) => typeof each?.message === "string");
  if (error) return error.data === undefined ? cannotRun(error) : agentError(error);
  if (status === null || said.some((each) => typeof each?.becomes === "string")) return null;
  return new MisconfiguredError(
    `Cannot pass the lock on to ${options.executable}: ${options.lockPasser} ended with status ` +
      `${status} and did not say that it runs anything; ${WAYS_OUT}`,
  );
}

/** What the agent's executable says of a program that it could not become; else it is itself that failed. */
function cannotRun({ message, exit }: { message: string; exit?: number }): Error {
  return exit === 127 || exit === 126
    ? new MisconfiguredError(`${message}; ${NAME_IT}`)
    : new AgentError(message, { kind: "internal" });
}

const NAME_IT = "have the option `executable` name a program that can be run";

const WAYS_OUT =
  "name the agent's executable, of this version or newer, by passLock, or go without " +
  "by passLock: false (its price is in the client's documentation)";

/** What `spawn` failed with, as the caller gets it: where something is not there, what to do. */
function startFailure(error: Error, { executable, lockPasser }: LeashOptions): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code !== "ENOENT" && code !== "EACCES" && error.name !== "NotCapable") return error;
  const what = lockPasser === null
    ? `Cannot run ${executable}: ${message}; ${NAME_IT} (Deno: and in --allow-run)`
    : `Cannot pass the lock on to ${executable} by way of the agent's executable "${lockPasser}": ` +
      `${message}; have it in PATH (Deno: and in --allow-run), ${WAYS_OUT}`;
  return new MisconfiguredError(what, { cause: error });
}

// deno-lint-ignore no-explicit-any
function parsed(line: string): any {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

function collect(stream: NodeJS.ReadableStream): () => Buffer {
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  return () => Buffer.concat(chunks);
}
