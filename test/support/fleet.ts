/** Agents that share a coordinator and a bucket of their own, and commands guarded by them. */
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Connection } from "../../src/client/mod.ts";
import { WRITER } from "./kill_storm.ts";
import { AGENT, RealAgent, type RealAgentOptions } from "./real_agent.ts";
import { reap, reapDir, reaped } from "./reaper.ts";
import { until } from "./wait.ts";

let buckets = 0;

/** Starts an agent of one fleet. */
export type StartAgent = (node: string, more?: Partial<RealAgentOptions>) => Promise<RealAgent>;

/** A fleet on the coordinator at `url`, with leases of `ttlMs`. */
export function fleet(url: string, ttlMs: number): StartAgent {
  const bucket = `fleet${process.pid}-${++buckets}`;
  return async (node, more = {}) => {
    const agent = await RealAgent.start({
      node,
      nats: url,
      ...more,
      flags: ["--bucket", bucket, "--ttl", `${ttlMs}ms`, ...more.flags ?? []],
    });
    agent.makeStore("one");
    return agent;
  };
}

/** An agent in the place of one that ended: its state, its locks, its socket. */
export function again(agent: RealAgent): Partial<RealAgentOptions> {
  const { state, locks, socket } = agent;
  return { state, locks, socket };
}

/** A command under `agent guard`. */
export interface Guarded {
  readonly pid: number;
  /** Its exit status: 128 + n for a signal to `agent guard` itself. */
  readonly exited: Promise<number>;
  readonly stdout: Promise<string>;
  readonly stderr: Promise<string>;
  kill(signal: NodeJS.Signals): void;
}

/** How a command is guarded. */
interface GuardOptions {
  readonly flags?: readonly string[];
  readonly env?: Record<string, string>;
  readonly cwd?: string;
}

/** Starts `agent guard one FLAGS… -- COMMAND…`. */
export function guardOne(
  agent: RealAgent,
  command: readonly string[],
  options: GuardOptions = {},
): Guarded {
  return guardStore(agent, "one", command, options);
}

/** Starts `agent guard STORE FLAGS… -- COMMAND…`. */
export function guardStore(
  agent: RealAgent,
  store: string,
  command: readonly string[],
  options: GuardOptions = {},
): Guarded {
  const child = Bun.spawn({
    cmd: [AGENT, "guard", store, ...options.flags ?? [], "--", ...command],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket, ...options.env },
    cwd: options.cwd,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  reap(child.pid);
  return {
    pid: child.pid,
    stdout: new Response(child.stdout).text(),
    stderr: new Response(child.stderr).text(),
    exited: child.exited.then((status) => {
      reaped(child.pid);
      return status;
    }),
    kill: (signal) => child.kill(signal),
  };
}

/** A log that writers of several nodes append to; see `faultsOf`. */
export class SharedLog {
  readonly path: string;

  constructor() {
    const dir = mkdtempSync(join(tmpdir(), "shared-log-"));
    reapDir(dir);
    this.path = join(dir, "log");
  }

  get text(): string {
    try {
      return readFileSync(this.path, "utf8");
    } catch {
      return "";
    }
  }

  /** Writes to it under a guard, about a hundred lines a second, `lines` of them at most. */
  write(agent: RealAgent, lines: number, flags: readonly string[] = []): Guarded {
    return guardOne(agent, this.#command(lines, "TERM"), { flags });
  }

  /** The same by a writer that does not hear SIGTERM. */
  writeStubbornly(agent: RealAgent, lines: number, flags: readonly string[] = []): Guarded {
    return guardOne(agent, this.#command(lines, ""), { flags });
  }

  /** Resolves when a writer of the node has written. */
  async writtenBy(node: string): Promise<void> {
    await until(`${node} writes`, () => this.text.includes(` ${node} `));
  }

  #command(lines: number, trap: string): string[] {
    const script = trap === "" ? `trap '' TERM\n${WRITER}` : WRITER;
    return ["bash", "-c", script, "-", this.path, String(lines)];
  }
}

/** Notifications of a connection as they come. */
export function notificationsOf(client: Connection): { method: string; params: object }[] {
  const seen: { method: string; params: object }[] = [];
  client.onNotification((notification) => void seen.push(notification));
  return seen;
}
