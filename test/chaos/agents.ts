/**
 * The agents of a run, each on a host of its own with its state, its socket, and a process of writers
 * beside it.
 * @module
 */
import { existsSync, mkdirSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freezeProcess } from "../support/freeze.ts";
import { reap, reaped } from "../support/reaper.ts";
import type { Host } from "./network.ts";
import { Proxy } from "./proxies.ts";
import type { Order } from "./proxy.ts";
import type { OlderOptions } from "./older.ts";
import type { WriterOptions } from "./writer.ts";

/** How to run an agent. */
export interface AgentPlan {
  readonly host: Host;
  readonly program: string;
  readonly dir: string;
  /** `HOST:PORT` of each server. */
  readonly servers: readonly string[];
  readonly proxied: boolean;
  /** Path of libfaketime, for an agent whose wall clock can be stepped; null for the real one. */
  readonly faketime: string | null;
  readonly lockPath: string;
  readonly password: string;
  readonly flags: readonly string[];
}

/** An agent with its proxy. */
export class ChaosAgent {
  readonly name: string;
  readonly plan: AgentPlan;
  readonly socket: string;
  /** Replaced by an upgrade. */
  program: string;
  frozen = false;
  #process: Bun.Subprocess | null = null;
  #proxy: Proxy | null = null;
  #urls: readonly string[] = [];

  static async start(plan: AgentPlan): Promise<ChaosAgent> {
    const agent = new ChaosAgent(plan);
    if (plan.proxied) await agent.#startProxy();
    else agent.#urls = plan.servers.map((server) => `nats://${server}`);
    agent.run();
    return agent;
  }

  private constructor(plan: AgentPlan) {
    this.plan = plan;
    this.name = plan.host.name;
    this.program = plan.program;
    this.socket = join(plan.dir, "agent.sock");
    mkdirSync(plan.dir, { recursive: true });
    writeFileSync(join(plan.dir, "password"), plan.password + "\n", { mode: 0o600 });
    this.stepClock(0);
  }

  get running(): boolean {
    return this.#process !== null;
  }

  get canStepClock(): boolean {
    return this.plan.faketime !== null;
  }

  /** Starts the agent, as its service manager would: same flags, same state. */
  run(): void {
    const { dir, host, flags, lockPath, faketime } = this.plan;
    this.#process = Bun.spawn({
      cmd: host.on([
        this.program,
        "run",
        "--node",
        this.name,
        "--address",
        `http://${this.name}`,
        "--nats",
        this.#urls.join(","),
        "--user",
        this.name,
        "--password-file",
        join(dir, "password"),
        "--socket",
        this.socket,
        "--state-dir",
        join(dir, "state"),
        "--lock-path",
        lockPath,
        "--log-level",
        "debug",
        ...flags,
      ]),
      env: {
        PATH: process.env.PATH!,
        ...(faketime === null ? {} : {
          LD_PRELOAD: faketime,
          FAKETIME_TIMESTAMP_FILE: join(dir, "wall-clock"),
          FAKETIME_CACHE_DURATION: "1",
          // The wall clock alone: the other clocks count from boot, and cannot be set.
          FAKETIME_DONT_FAKE_MONOTONIC: "1",
          DONT_FAKE_MONOTONIC: "1",
          FAKETIME_DONT_RESET: "1",
        }),
      },
      stdin: "ignore",
      stdout: "ignore",
      stderr: openSync(join(dir, "log"), "a"),
    });
    this.frozen = false;
    reap(this.#process.pid);
  }

  /** Ends it with a signal; resolves with its exit status. */
  async end(signal: "SIGKILL" | "SIGTERM"): Promise<number> {
    const child = this.#process;
    if (child === null) return 0;
    if (this.frozen) this.thaw();
    child.kill(signal);
    const status = await child.exited;
    reaped(child.pid);
    this.#process = null;
    return status;
  }

  freeze(): void {
    freezeProcess(this.#process!.pid);
    this.frozen = true;
  }

  thaw(): void {
    this.#process?.kill("SIGCONT");
    this.frozen = false;
  }

  /** Sets its wall clock so many seconds off. It is noticed within a second. */
  stepClock(seconds: number): void {
    const sign = seconds < 0 ? "-" : "+";
    writeFileSync(join(this.plan.dir, "wall-clock"), `${sign}${Math.abs(seconds)}s\n`);
  }

  /** Tells its proxy to delay or hold. */
  tellProxy(order: Order): void {
    this.#proxy!.tell(order);
  }

  async stopProxy(): Promise<void> {
    await this.#proxy?.stop();
  }

  async #startProxy(): Promise<void> {
    const { host, servers } = this.plan;
    this.#proxy = await Proxy.start(
      host,
      servers.map((server) => ["127.0.0.1:0", server] as const),
    );
    this.#urls = this.#proxy.ports.map((port) => `nats://127.0.0.1:${port}`);
  }
}

/** A process of writers on a host, made anew when it was killed. */
export class Writers {
  readonly node: string;
  readonly #command: (generation: number) => string[];
  #generation = 0;
  #process: Bun.Subprocess<"pipe", "inherit", "inherit"> | null = null;

  /** The clients of an agent, which reach it by its socket. */
  static ofAgent(options: Omit<WriterOptions, "generation">): Writers {
    return new Writers(options.node, (generation) => [
      process.execPath,
      join(import.meta.dir, "writer.ts"),
      JSON.stringify({ ...options, generation } satisfies WriterOptions),
    ]);
  }

  /** The older program, on a host of its own. */
  static older(host: Host, options: Omit<OlderOptions, "generation">): Writers {
    return new Writers(options.node, (generation) =>
      host.on([
        process.execPath,
        join(import.meta.dir, "older.ts"),
        JSON.stringify({ ...options, generation } satisfies OlderOptions),
      ]));
  }

  private constructor(node: string, command: (generation: number) => string[]) {
    this.node = node;
    this.#command = command;
  }

  /** What the ids of the present process's requests start with. */
  get prefix(): string {
    return `${this.node}/${this.#generation}.`;
  }

  start(): void {
    this.#process = Bun.spawn({
      cmd: this.#command(++this.#generation),
      stdin: "pipe",
      stdout: "inherit",
      stderr: "inherit",
    });
    reap(this.#process.pid);
  }

  async kill(): Promise<void> {
    this.#process!.kill("SIGKILL");
    await this.#process!.exited;
    reaped(this.#process!.pid);
  }

  /** Lets it finish what it asked for. */
  async finish(): Promise<void> {
    const child = this.#process!;
    child.stdin.end();
    await child.exited;
    reaped(child.pid);
  }
}

/** Where Debian puts libfaketime; null where it is not, or not for this machine. */
export function faketimePath(): string | null {
  const machine = process.arch === "x64" ? "x86_64" : "aarch64";
  const path = `/usr/lib/${machine}-linux-gnu/faketime/libfaketime.so.1`;
  return existsSync(path) ? path : null;
}
