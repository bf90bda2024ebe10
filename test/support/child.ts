/** Other processes that a test talks to, a line at a time. */
import { once } from "node:events";
import { type ChildProcess, spawn, type StdioOptions } from "node:child_process";
import { createInterface } from "node:readline";

/** A child process; killed and waited for at the end of the scope (`await using`). */
export interface Child {
  readonly pid: number;
  /** The next line of its output; rejects when it ends without one. */
  line(): Promise<string>;
  /** Writes a line to it. */
  say(text: string): void;
  /** Sends a signal and waits for the end. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Waits for the end; returns the exit status, or null after a signal. */
  ended(): Promise<number | null>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** How to start a {@linkcode Child}. */
export interface ChildOptions {
  /** Descriptors to hand on, as 3, 4, … */
  readonly fds?: readonly number[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts a program with its input and output on pipes. */
export function child(command: readonly string[], options: ChildOptions = {}): Child {
  const stdio: StdioOptions = ["pipe", "pipe", "inherit", ...(options.fds ?? [])];
  const env = { ...process.env, ...options.env };
  const started: ChildProcess = spawn(command[0]!, command.slice(1), { stdio, env });
  const exit = once(started, "exit").then(([status]) => status as number | null);
  const lines = createInterface({ input: started.stdout! })[Symbol.asyncIterator]();
  const kill = async (signal: NodeJS.Signals = "SIGKILL") => {
    if (started.exitCode === null && started.signalCode === null) started.kill(signal);
    await exit;
  };
  return {
    pid: started.pid!,
    line: async () => {
      const { value, done } = await lines.next();
      if (done) throw new Error(`${command[0]} ended without another line`);
      return value;
    },
    say: (text) => void started.stdin!.write(text + "\n"),
    kill,
    ended: () => exit,
    [Symbol.asyncDispose]: () => kill(),
  };
}

/** Starts Python on a script. */
export function python(script: string, ...args: readonly string[]): Child {
  return child(["python3", "-u", "-c", script, ...args]);
}

/** Starts this runtime on a module of the project. */
export function bun(script: string, args: readonly string[], options: ChildOptions = {}): Child {
  return child([process.execPath, script, ...args], options);
}
