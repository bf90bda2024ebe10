/**
 * The nats-servers of a run: a cluster of three, each on a host of its own, and what an operator and
 * fate do to them.
 * @module
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { reap, reaped } from "../support/reaper.ts";
import type { Host, Network } from "./network.ts";

/** One server. */
export interface Server {
  readonly host: Host;
  readonly port: number;
  readonly monitorPort: number;
  readonly routePort: number;
  readonly dir: string;
  process: Bun.Subprocess | null;
  frozen: boolean;
}

/** The operator's own user. */
export const OPERATOR = { user: "operator", pass: "operator" } as const;

/** A cluster with one account and a user for each agent. */
export class Servers {
  readonly all: readonly Server[];
  readonly #program: string;
  /** Passwords by user; a user whose password is changed here and reloaded is locked out. */
  readonly #passwords: Map<string, string>;

  /** Writes the configurations; nothing runs yet. */
  static async make(
    options: {
      readonly network: Network;
      readonly names: readonly string[];
      readonly program: string;
      readonly dir: string;
      readonly passwords: ReadonlyMap<string, string>;
    },
  ): Promise<Servers> {
    const { network, names, program, dir, passwords } = options;
    const all: Server[] = [];
    for (const name of names) {
      const host = network.host(name);
      const path = join(dir, name);
      mkdirSync(path, { recursive: true });
      const [port, monitorPort, routePort] = [
        await host.port(4222),
        await host.port(8222),
        await host.port(6222),
      ];
      all.push({ host, port, monitorPort, routePort, dir: path, process: null, frozen: false });
    }
    return new Servers(all, program, passwords);
  }

  private constructor(
    all: readonly Server[],
    program: string,
    passwords: ReadonlyMap<string, string>,
  ) {
    this.all = all;
    this.#program = program;
    this.#passwords = new Map(passwords);
  }

  get urls(): string[] {
    return this.all.map(({ host, port }) => `nats://${host.ip}:${port}`);
  }

  named(name: string): Server {
    return this.all.find(({ host }) => host.name === name)!;
  }

  /** Starts a server that does not run. */
  start(server: Server): void {
    if (server.process !== null) throw new Error(`${server.host.name} runs already`);
    this.#configure(server);
    server.process = Bun.spawn(
      server.host.on([this.#program, "-c", join(server.dir, "nats.conf")]),
      { stdin: "ignore", stdout: "ignore", stderr: "ignore" },
    );
    server.frozen = false;
    reap(server.process.pid);
  }

  /** Ends a server; resolves when it is gone. */
  async stop(server: Server, signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const { process } = server;
    if (process === null) return;
    if (server.frozen) this.thaw(server);
    process.kill(signal);
    await process.exited;
    reaped(process.pid);
    server.process = null;
  }

  freeze(server: Server): void {
    server.process!.kill("SIGSTOP");
    server.frozen = true;
  }

  thaw(server: Server): void {
    server.process?.kill("SIGCONT");
    server.frozen = false;
  }

  /** Changes a user's password on every server that runs; who is connected by the old one is cut off. */
  setPassword(user: string, password: string): void {
    this.#passwords.set(user, password);
    for (const server of this.all) {
      this.#configure(server);
      if (!server.frozen) server.process?.kill("SIGHUP");
    }
  }

  /** Resolves when all servers say that they and their streams are well. */
  async healthy(withinMs = 60_000): Promise<void> {
    const end = performance.now() + withinMs;
    for (const server of this.all) {
      while ((await this.#ask(server, "healthz"))?.status !== "ok") {
        if (performance.now() > end) throw new Error(`${server.host.name} does not get healthy`);
        await Bun.sleep(50);
      }
    }
  }

  /** The server that leads a stream, as far as anybody knows; null if nobody does. */
  async leader(stream: string): Promise<Server | null> {
    for (const server of this.all) {
      if (server.process === null || server.frozen) continue;
      const jsz = await this.#ask(server, "jsz?streams=true&accounts=true");
      for (const account of jsz?.account_details ?? []) {
        for (const detail of account.stream_detail ?? []) {
          const leader = detail.name === stream && detail.cluster?.leader;
          if (leader) return this.named(leader) ?? null;
        }
      }
    }
    return null;
  }

  // deno-lint-ignore no-explicit-any
  async #ask(server: Server, path: string): Promise<any> {
    try {
      const url = `http://${server.host.ip}:${server.monitorPort}/${path}`;
      return await (await fetch(url, { signal: AbortSignal.timeout(500) })).json();
    } catch {
      return null;
    }
  }

  #configure({ host, port, monitorPort, routePort, dir }: Server): void {
    const routes = this.all.map((other) => `"nats://${other.host.ip}:${other.routePort}"`);
    const users = [...this.#passwords, [OPERATOR.user, OPERATOR.pass]]
      .map(([user, password]) => `{ user: ${user}, password: ${password} }`);
    // no_advertise: who is told to come through a proxy must not learn the way around it.
    writeFileSync(
      join(dir, "nats.conf"),
      `server_name: ${host.name}
listen: "${host.ip}:${port}"
http: "${host.ip}:${monitorPort}"
log_file: "${join(dir, "log")}"
jetstream { store_dir: "${join(dir, "js")}" }
cluster { name: chaos, listen: "${host.ip}:${routePort}", no_advertise: true
  routes: [${routes.join(", ")}] }
authorization { users: [ ${users.join(", ")} ] }
`,
    );
  }
}
