/**
 * A real agent as a process of its own: the built program, a state directory, lock files, a log to
 * read. What tests of the whole run against.
 * @module
 */
import { mkdirSync, mkdtempSync, openSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AgentError, type Connection, openConnection } from "../../src/client/mod.ts";
import type { Kind } from "../../src/lease/errors.ts";
import { AGENT, finish } from "./agent_under_test.ts";
import { freezeProcess } from "./freeze.ts";
import { reap, reapDir, reaped } from "./reaper.ts";
import { until } from "./wait.ts";

export { AGENT };

/** How an agent is started. */
export interface RealAgentOptions {
  readonly node: string;
  /** URLs; none: standalone. */
  readonly nats?: string;
  /** Further flags of `agent run`. */
  readonly flags?: readonly string[];
  /** Shared by agents whose lock files shall be the same; default: a directory of its own. */
  readonly locks?: string;
  /** Default: a directory of its own. */
  readonly state?: string;
  /** Default: in a directory of its own. */
  readonly socket?: string;
  /** Default true: resolves once READY. */
  readonly awaitReady?: boolean;
  readonly env?: Record<string, string>;
  /** A command that becomes the one behind it: setpriv, prlimit. */
  readonly wrap?: readonly string[];
}

/** A line of the log. */
export interface LogLine {
  readonly event: string;
  readonly level: string;
  readonly store?: string;
  // deno-lint-ignore no-explicit-any
  readonly [field: string]: any;
}

/** An agent that runs, or ran. */
export class RealAgent {
  readonly options: RealAgentOptions;
  readonly dir: string;
  readonly socket: string;
  readonly locks: string;
  readonly state: string;
  readonly #process: Bun.Subprocess;
  readonly #connections: Connection[] = [];

  /** Starts an agent; resolves when it is ready, unless told not to wait. */
  static async start(options: RealAgentOptions): Promise<RealAgent> {
    const agent = new RealAgent(options);
    if (options.awaitReady ?? true) await agent.logged("ready");
    return agent;
  }

  private constructor(options: RealAgentOptions) {
    this.options = options;
    this.dir = mkdtempSync(join(tmpdir(), "agent-"));
    reapDir(this.dir);
    this.socket = options.socket ?? join(this.dir, "agent.sock");
    this.locks = options.locks ?? join(this.dir, "locks");
    this.state = options.state ?? join(this.dir, "state");
    mkdirSync(this.locks, { recursive: true });
    const { node, nats, flags = [], wrap = [] } = options;
    this.#process = Bun.spawn({
      cmd: [
        ...wrap,
        AGENT,
        "run",
        "--node",
        node,
        ...(nats === undefined ? ["--standalone", "a test"] : ["--nats", nats]),
        "--socket",
        this.socket,
        "--state-dir",
        this.state,
        "--lock-path",
        join(this.locks, "{store}/lease.lock"),
        "--log-level",
        "debug",
        ...flags,
      ],
      env: { PATH: process.env.PATH!, ...options.env },
      stdin: "ignore",
      stdout: "ignore",
      stderr: openSync(join(this.dir, "log"), "a"),
    });
    reap(this.pid);
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Makes the directory of a store, so that it can be guarded. */
  makeStore(code: string): string {
    const path = join(this.locks, code);
    mkdirSync(path, { recursive: true });
    return path;
  }

  /** What it logged so far. */
  log(): LogLine[] {
    const text = readFileSync(join(this.dir, "log"), "utf8");
    return text.split("\n").slice(0, -1).map((line) => {
      try {
        return JSON.parse(line);
      } catch {
        return { event: "not JSON", level: "error", line };
      }
    });
  }

  /** Resolves with the first line of the log, after the first `from`, that is such an event. */
  logged(event: string, where: Record<string, unknown> = {}, from = 0): Promise<LogLine> {
    return until(`${this.options.node} logs ${event} ${JSON.stringify(where)}`, () => {
      const lines = this.log().slice(from);
      const found = lines.find((line) =>
        line.event === event &&
        Object.entries(where).every(([name, value]) => line[name] === value)
      );
      if (found === undefined && this.#process.exitCode !== null) {
        throw new Error(`the agent ended: ${JSON.stringify(lines.slice(-5))}`);
      }
      return found;
    });
  }

  /** A connection of its own, closed with the agent. */
  async client(): Promise<Connection> {
    const connection = await openConnection({ socket: this.socket });
    this.#connections.push(connection);
    return connection;
  }

  /** Sends a signal; after SIGSTOP it stands still. */
  signal(signal: NodeJS.Signals): void {
    if (signal === "SIGSTOP") freezeProcess(this.pid);
    else this.#process.kill(signal);
  }

  /** Sends a signal and resolves with the exit status: 128 + n for a fatal signal. */
  async end(signal: NodeJS.Signals): Promise<number> {
    this.signal(signal);
    return await this.exited();
  }

  /** Resolves with the exit status. */
  async exited(): Promise<number> {
    const status = await this.#process.exited;
    reaped(this.pid);
    return status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections) await connection.close();
    this.#process.kill("SIGKILL");
    await this.exited();
  }
}

/** The kind with which a call is refused; fails if it is not. */
export async function refusal(call: Promise<unknown>): Promise<{ kind: Kind; error: AgentError }> {
  try {
    const result = await call;
    throw new Error(`not refused: ${JSON.stringify(result)}`);
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    return { kind: error.kind as Kind, error };
  }
}

/** Runs a client command to its end. */
export async function runClient(
  agent: RealAgent,
  args: readonly string[],
  options: { env?: Record<string, string>; cwd?: string } = {},
): Promise<{ status: number; stdout: string; stderr: string }> {
  const child = Bun.spawn({
    cmd: [AGENT, ...args],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket, ...options.env },
    cwd: options.cwd,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const { stdout, stderr } = await finish(child);
  return { status: await child.exited, stdout, stderr };
}
