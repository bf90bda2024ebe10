/**
 * The nats-servers of a run: a cluster of three, each on a host of its own, and what an operator and
 * fate do to them.
 * @module
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freezeProcess } from "../support/freeze.ts";
import { PowerDisk } from "../support/power_disk.ts";
import { reap, reaped } from "../support/reaper.ts";
import type { Host, Network } from "./network.ts";
import { Proxy } from "./proxies.ts";

/** One server. */
export interface Server {
  readonly host: Host;
  readonly port: number;
  readonly monitorPort: number;
  /** Where it listens for the others' routes; … */
  readonly routePort: number;
  /** …and where they find it: a proxy's port, through which all that comes by their routes passes. */
  readonly advertisedPort: number;
  readonly dir: string;
  /** What its streams are on; null where there can be no such disk. */
  readonly disk: PowerDisk | null;
  /** Replaced by an upgrade. */
  program: string;
  process: Bun.Subprocess | null;
  frozen: boolean;
}

/** A server that takes longer to start is stuck, on the busiest machine. */
const START_MS = 60_000;

/** The operator's own user. */
export const OPERATOR = { user: "operator", pass: "operator" } as const;

/** What the servers of a run are made of. */
export interface ServersPlan {
  readonly network: Network;
  readonly names: readonly string[];
  /** The program of each. */
  readonly programs: readonly string[];
  readonly dir: string;
  readonly passwords: ReadonlyMap<string, string>;
  /** Whether they write to disk before they acknowledge. */
  readonly syncAlways: boolean;
  /** Whether each has a disk of its own, whose power can fail. */
  readonly disks: boolean;
}

/** A cluster with one account and a user for each agent. */
export class Servers {
  readonly all: readonly Server[];
  readonly #syncAlways: boolean;
  /** By server: what passes through it was dialled by the others, with their addresses. */
  readonly #proxies: ReadonlyMap<Server, Proxy>;
  /** Passwords by user; a user whose password is changed here and reloaded is locked out. */
  readonly #passwords: Map<string, string>;

  /** Makes the disks and starts the proxies; no server runs yet. */
  static async make(plan: ServersPlan): Promise<Servers> {
    const all: Server[] = [];
    const proxies = new Map<Server, Proxy>();
    for (const [index, name] of plan.names.entries()) {
      const server = await makeServer(plan, index, name);
      const at = (port: number) => `${server.host.ip}:${port}`;
      const pair = [at(server.advertisedPort), at(server.routePort)] as const;
      proxies.set(server, await Proxy.start(server.host, [pair]));
      all.push(server);
    }
    return new Servers(all, proxies, plan);
  }

  private constructor(
    all: readonly Server[],
    proxies: ReadonlyMap<Server, Proxy>,
    { passwords, syncAlways }: ServersPlan,
  ) {
    this.all = all;
    this.#proxies = proxies;
    this.#syncAlways = syncAlways;
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
      server.host.on([server.program, "-c", join(server.dir, "nats.conf")]),
      { stdin: "ignore", stdout: "ignore", stderr: "ignore" },
    );
    server.frozen = false;
    reap(server.process.pid);
  }

  /** Ends a server; resolves when it is gone. */
  async stop(server: Server, signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const { process } = server;
    if (process === null) return;
    // Killed first: one that was thawed would serve once more.
    process.kill(signal);
    if (server.frozen) this.thaw(server);
    await process.exited;
    reaped(process.pid);
    server.process = null;
  }

  /** The server's machine loses its power: what it did not sync is gone. */
  async powerOff(server: Server): Promise<void> {
    if (server.disk === null) throw new Error(`${server.host.name} has no disk of its own`);
    // Frozen first: nothing is acknowledged after the disk is gone.
    if (server.process !== null) this.freeze(server);
    server.disk.cut();
    await this.stop(server);
    server.disk.restore();
  }

  /** Stops it where it is; returns when each of its threads stands. */
  freeze(server: Server): void {
    freezeProcess(server.process!.pid);
    server.frozen = true;
  }

  thaw(server: Server): void {
    server.process?.kill("SIGCONT");
    server.frozen = false;
  }

  /** Changes passwords on every server that runs; who is connected by an old one is cut off. */
  async setPasswords(passwords: ReadonlyMap<string, string>): Promise<void> {
    for (const [user, password] of passwords) this.#passwords.set(user, password);
    for (const server of this.all) this.#configure(server);
    for (const server of this.all) {
      // The signal ends a server that has just been started, and does not wait for it yet.
      if (!server.frozen) await this.#serves(server);
      if (!server.frozen) server.process?.kill("SIGHUP");
    }
  }

  /** Delays what passes between these servers and all others by so much each way; 0 for not at all. */
  delayRoutes(delayMs: number, servers: readonly Server[] = this.all): void {
    const addresses = servers.map(({ host }) => host.ip);
    for (const [server, proxy] of this.#proxies) {
      // Either end dials: what the server's own proxy has is its, what the others' have is by address.
      proxy.tell({ delayMs, only: servers.includes(server) ? null : addresses });
    }
  }

  /** Ends the proxies and unmounts the disks; no server must run any more. */
  async dispose(): Promise<void> {
    for (const proxy of this.#proxies.values()) await proxy.stop();
    for (const { disk } of this.all) disk?.[Symbol.dispose]();
  }

  /** Resolves when all servers say that they and their streams are well. */
  async healthy(withinMs = 60_000): Promise<void> {
    const end = performance.now() + withinMs;
    for (const server of this.all) {
      while ((await this.#ask(server, "healthz"))?.status !== "ok") {
        const { exitCode = null, signalCode = null } = server.process ?? {};
        if (performance.now() > end || exitCode !== null || signalCode !== null) {
          const log = readFileSync(join(server.dir, "log"), "utf8").split("\n").slice(-20);
          throw new Error(
            `${server.host.name} does not get healthy (it ended: ${exitCode ?? signalCode}):\n${
              log.join("\n")
            }`,
          );
        }
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

  /** Resolves when a server answers, whatever it says of itself; or is no more. */
  async #serves(server: Server): Promise<void> {
    const end = performance.now() + START_MS;
    const { process } = server;
    while (process !== null && process.exitCode === null && process.signalCode === null) {
      if (await this.#ask(server, "varz") !== null) return;
      if (performance.now() > end) throw new Error(`${server.host.name} does not start`);
      await Bun.sleep(10);
    }
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

  #configure({ host, port, monitorPort, routePort, advertisedPort, dir }: Server): void {
    const routes = this.all.filter((other) => other.host !== host)
      .map((other) => `"nats://${other.host.ip}:${other.advertisedPort}"`);
    const users = [...this.#passwords, [OPERATOR.user, OPERATOR.pass]]
      .map(([user, password]) => `{ user: ${user}, password: ${password} }`);
    // no_advertise: who is told to come through a proxy must not learn the way around it.
    writeFileSync(
      join(dir, "nats.conf"),
      `server_name: ${host.name}
listen: "${host.ip}:${port}"
http: "${host.ip}:${monitorPort}"
log_file: "${join(dir, "log")}"
jetstream { store_dir: "${join(dir, "disk", "js")}"
  sync_interval: ${this.#syncAlways ? "always" : "2m"} }
cluster { name: chaos, listen: "${host.ip}:${routePort}", no_advertise: true
  advertise: "${host.ip}:${advertisedPort}"
  routes: [${routes.join(", ")}] }
authorization { users: [ ${users.join(", ")} ] }
`,
    );
  }
}

async function makeServer(
  { network, dir, programs, disks }: ServersPlan,
  index: number,
  name: string,
): Promise<Server> {
  const host = network.host(name);
  const path = join(dir, name);
  mkdirSync(path, { recursive: true });
  return {
    host,
    port: await host.port(4222),
    monitorPort: await host.port(8222),
    routePort: await host.port(6222),
    advertisedPort: await host.port(6223),
    dir: path,
    disk: disks ? PowerDisk.mount(join(path, "disk")) : null,
    program: programs[index],
    process: null,
    frozen: false,
  };
}
