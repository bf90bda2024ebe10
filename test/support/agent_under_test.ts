/**
 * The built program as a process, and a fake agent for it to ask.
 * @module
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Order } from "./fake_agent.ts";
import { freezeProcess } from "./freeze.ts";

/** The program, as `scripts/build` makes it; `scripts/test` builds it first. */
export const AGENT = join(import.meta.dir, "../../dist/agent");

/** What a finished process left. */
export interface Finished {
  readonly exit: number | null;
  readonly signal: string | number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** How to run a program. */
export interface RunProgramOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly cwd?: string;
}

/** A fake agent with a directory of its own; ended when disposed of. */
export class FakeAgent {
  readonly directory = mkdtempSync(join(tmpdir(), "zit-cli-"));
  readonly socket = join(this.directory, "agent.sock");
  readonly #process;
  readonly #lines;
  readonly #started: Bun.Subprocess[] = [];

  private constructor(ttlMs: number) {
    this.#process = Bun.spawn({
      cmd: [process.execPath, join(import.meta.dir, "fake_agent.ts"), this.directory, `${ttlMs}`],
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    });
    this.#lines = linesOf(this.#process.stdout);
  }

  /** Starts one whose leases last `ttlMs`. */
  static async start(ttlMs = 3_000): Promise<FakeAgent> {
    const agent = new FakeAgent(ttlMs);
    await agent.#lines.next();
    return agent;
  }

  /** Has it do something, and waits until it did. */
  async order(order: Order): Promise<void> {
    this.#process.stdin.write(`${JSON.stringify(order)}\n`);
    await this.#process.stdin.flush();
    await this.#lines.next();
  }

  /** Ends it without a word. */
  async kill(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#process.exited;
  }

  /** Stops it where it stands, as a machine does that hangs. */
  freeze(): void {
    freezeProcess(this.#process.pid);
  }

  /** A path in its directory. */
  path(name: string): string {
    return join(this.directory, name);
  }

  /** Starts `agent …` against it. */
  spawn(args: readonly string[], options: RunProgramOptions = {}) {
    const child = Bun.spawn({
      cmd: [AGENT, ...args],
      env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: this.socket, ...options.env },
      cwd: options.cwd ?? this.directory,
      stdin: options.stdin === undefined ? "ignore" : new Blob([options.stdin]),
      stdout: "pipe",
      stderr: "pipe",
    });
    this.#started.push(child);
    return child;
  }

  /** Runs `agent …` against it to the end. */
  run(args: readonly string[], options: RunProgramOptions = {}): Promise<Finished> {
    return finish(this.spawn(args, options));
  }

  /** Runs `agent guard store -- sh -c SCRIPT`. */
  guard(script: string, flags: readonly string[] = []): Promise<Finished> {
    return this.run(["guard", "store", ...flags, "--", "sh", "-c", script]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#started) child.kill("SIGKILL");
    this.#process.kill("SIGKILL");
    await Promise.all([this.#process, ...this.#started].map((each) => each.exited));
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Runs the program with nothing around it. */
export function runAgent(
  args: readonly string[],
  options: RunProgramOptions = {},
): Promise<Finished> {
  return finish(Bun.spawn({
    cmd: [AGENT, ...args],
    env: { PATH: process.env.PATH!, ...options.env },
    cwd: options.cwd,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  }));
}

/** Waits for a process and collects what it wrote. */
export async function finish(
  child: Bun.Subprocess<Bun.SpawnOptions.Writable, "pipe", "pipe">,
): Promise<Finished> {
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { exit: child.exitCode, signal: child.signalCode, stdout, stderr };
}

/** Waits until `look` finds something; the test's own timeout bounds it. */
export async function until<T>(look: () => T | null | undefined | false): Promise<T> {
  while (true) {
    const found = look();
    if (found !== null && found !== undefined && found !== false) return found;
    await Bun.sleep(10);
  }
}

/** Waits until a file holds a whole line, and returns the line. */
export function untilLine(path: string): Promise<string> {
  return until(() => {
    const text = existsSync(path) ? readFileSync(path, "utf8") : "";
    return text.endsWith("\n") ? text.trimEnd() : null;
  });
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream) {
    const lines = (text + decoder.decode(chunk, { stream: true })).split("\n");
    text = lines.pop()!;
    yield* lines;
  }
}
