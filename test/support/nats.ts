/**
 * Starts real nats-servers for tests: one or a cluster, with JetStream in a temporary directory,
 * and does to them what happens to servers: freeze, thaw, kill, restart.
 * @module
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freezeProcess } from "./freeze.ts";
import { PowerDisk } from "./power_disk.ts";
import { reap, reapDir, reaped } from "./reaper.ts";
import { until } from "./wait.ts";

const SCRIPT = new URL("../../scripts/nats-server", import.meta.url).pathname;
const paths = new Map<string, string>();

/** The path of a fit nats-server, or of the one that a Debian suite has, fit or not. */
export function natsServerPath(suite?: "bookworm" | "trixie" | "forky"): string {
  const key = suite ?? "";
  const known = paths.get(key);
  if (known !== undefined) return known;
  const run = Bun.spawnSync([SCRIPT, ...(suite ? ["--suite", suite] : [])]);
  if (!run.success) throw new Error(`scripts/nats-server: ${run.stderr}`);
  const path = run.stdout.toString().trim();
  paths.set(key, path);
  return path;
}

/** Below those that the kernel gives to whoever does not care: what is free there stays so. */
const PORTS = { from: 12_000, to: 32_000 };

/**
 * Tests run in several processes side by side, and a port is free for all of them until somebody listens: so
 * processes that were started one after the other take theirs from different parts.
 */
const PART = 1_000;
const part = PORTS.from + process.pid % ((PORTS.to - PORTS.from) / PART) * PART;

const given = new Set<number>();

/**
 * A port that was free a moment ago, and is given nobody else in this process. A server that is killed and
 * started again finds it free still.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    // Not forever within the part: some of it is taken, and what was given is not given again.
    const [from, size] = given.size < PART / 2 ? [part, PART] : [PORTS.from, PORTS.to - PORTS.from];
    const port = from + Math.floor(Math.random() * size);
    if (given.has(port) || !await isFree(port)) continue;
    given.add(port);
    return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

/** How to start a server. */
export interface NatsServerOptions {
  /** More lines for the configuration file: authorization, tls, cluster… */
  readonly config?: string;
  /** The program; default: a fit one. */
  readonly program?: string;
  /** Default: true. */
  readonly jetstream?: boolean;
  /** Lines for the jetstream block. */
  readonly jetstreamConfig?: string;
  /** Whether its streams are on a disk of their own, whose power can fail. Default: false. */
  readonly ownDisk?: boolean;
  readonly name?: string;
  /** Default: a random one. */
  readonly port?: number;
  /** Default: whether `/healthz` says so. False for a member of a cluster that is not yet complete. */
  readonly awaitHealth?: boolean;
}

/** A running (or frozen, or killed) nats-server on the loopback. */
export class NatsServer {
  readonly dir: string;
  readonly name: string;
  port = 0;
  monitorPort = 0;
  #options: NatsServerOptions;
  #written = { port: 0, monitorPort: 0 };
  #process: Bun.Subprocess | null = null;
  readonly #disk: PowerDisk | null;

  /** Starts a server; resolves when it is ready. */
  static async start(options: NatsServerOptions = {}): Promise<NatsServer> {
    const server = new NatsServer(options);
    server.port = options.port ?? await freePort();
    server.monitorPort = await freePort();
    await server.restart();
    return server;
  }

  private constructor(options: NatsServerOptions) {
    this.#options = options;
    this.name = options.name ?? "n1";
    this.dir = mkdtempSync(join(tmpdir(), "nats-"));
    reapDir(this.dir);
    this.#disk = options.ownDisk ? PowerDisk.mount(join(this.dir, "js")) : null;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  get pid(): number {
    if (this.#process === null) throw new Error("the server does not run");
    return this.#process.pid;
  }

  /** The additional lines of its configuration. */
  get config(): string {
    return this.#options.config ?? "";
  }

  /** What it wrote to its log so far. */
  log(): string {
    return readFileSync(join(this.dir, "log"), "utf8");
  }

  /** Starts it (again), on the same port and store; `config` replaces the additional lines. */
  async restart(config?: string): Promise<void> {
    if (config !== undefined) this.#options = { ...this.#options, config };
    await this.kill();
    this.#written = { port: this.port, monitorPort: this.monitorPort };
    this.#writeConfig(this.#written);
    const program = this.#options.program ?? natsServerPath();
    this.#process = Bun.spawn([program, "-c", join(this.dir, "nats.conf")], {
      stdin: "ignore",
      stdout: "ignore",
      stderr: "ignore",
    });
    reap(this.#process.pid);
    await this.#readPorts();
    if (this.#options.awaitHealth ?? true) await this.healthy();
  }

  /** Replaces the additional lines of the configuration and has the server read them. */
  async reload(config: string): Promise<void> {
    this.#options = { ...this.#options, config };
    // With the ports as they were written at the start: a server refuses to change them.
    this.#writeConfig(this.#written);
    const seen = this.log().length;
    process.kill(this.pid, "SIGHUP");
    await until("the configuration is reloaded", () => {
      const news = this.log().slice(seen);
      if (/Failed to reload/.test(news)) throw new Error(news);
      return /Reloaded server configuration/.test(news);
    });
  }

  /** Resolves when the server says that it is well, JetStream included. */
  async healthy(): Promise<void> {
    await until(`${this.name} is healthy`, async () => {
      if (this.#process?.exitCode !== null) throw new Error(`${this.name} ended: ${this.log()}`);
      return (await this.monitor("healthz"))?.status === "ok";
    });
  }

  /** What the monitoring port answers, or null. */
  // deno-lint-ignore no-explicit-any
  async monitor(path: string): Promise<any> {
    try {
      const response = await fetch(`http://127.0.0.1:${this.monitorPort}/${path}`);
      return await response.json();
    } catch {
      return null;
    }
  }

  /** Stops it where it is; returns when each of its threads stands. */
  freeze(): void {
    freezeProcess(this.pid);
  }

  thaw(): void {
    process.kill(this.pid, "SIGCONT");
  }

  /** Its host is made anew: what JetStream kept is gone. It has to be started again. */
  async wipe(): Promise<void> {
    await this.kill();
    rmSync(join(this.dir, "js"), { recursive: true, force: true });
  }

  /** SIGKILL; resolves when it is gone. The store stays. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (child === null) return;
    this.#process = null;
    child.kill("SIGKILL");
    await child.exited;
    reaped(child.pid);
  }

  /** All that it has written so far is on its own disk. */
  syncDisk(): void {
    this.#disk!.sync();
  }

  /** Its machine loses its power: what it did not sync is gone. Resolves when it can be started. */
  async powerOff(): Promise<void> {
    // Frozen first: nothing is acknowledged after the disk is gone.
    if (this.#process !== null) this.freeze();
    this.#disk!.cut();
    await this.kill();
    this.#disk!.restore();
  }

  /** Kills it and removes its directory. */
  async stop(): Promise<void> {
    await this.kill();
    this.#disk?.[Symbol.dispose]();
    rmSync(this.dir, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #writeConfig({ port, monitorPort }: { port: number; monitorPort: number }): void {
    const { jetstream = true, jetstreamConfig = "", config = "" } = this.#options;
    mkdirSync(join(this.dir, "ports"), { recursive: true });
    const lines = [
      `server_name: ${this.name}`,
      `listen: "127.0.0.1:${port === 0 ? -1 : port}"`,
      `http: "127.0.0.1:${monitorPort === 0 ? -1 : monitorPort}"`,
      `log_file: "${join(this.dir, "log")}"`,
      `ports_file_dir: "${join(this.dir, "ports")}"`,
      jetstream ? `jetstream { store_dir: "${join(this.dir, "js")}"\n${jetstreamConfig} }` : "",
      config,
    ];
    writeFileSync(join(this.dir, "nats.conf"), lines.join("\n") + "\n");
  }

  /** The server writes its ports to a file, named by its pid, once it listens. */
  async #readPorts(): Promise<void> {
    const dir = join(this.dir, "ports");
    const text = await until(`${this.name} listens`, () => {
      const child = this.#process;
      if (child?.exitCode !== null) throw new Error(`${this.name} ended: ${this.log()}`);
      const file = readdirSync(dir).find((name) => name.includes(`_${child.pid}.ports`));
      return file === undefined ? null : readFileSync(join(dir, file), "utf8");
    });
    const ports = JSON.parse(text) as { nats: string[]; monitoring: string[] };
    this.port = Number(new URL(ports.nats[0]).port);
    this.monitorPort = Number(new URL(ports.monitoring[0]).port);
  }
}

/** A cluster whose members each keep JetStream. */
export class NatsCluster {
  readonly servers: readonly NatsServer[];

  /** Starts a cluster; resolves when it has a meta leader and all members are healthy. */
  static async start(
    size = 3,
    config = "",
    more: Pick<NatsServerOptions, "jetstreamConfig" | "ownDisk"> = {},
  ): Promise<NatsCluster> {
    const ports = await Promise.all(Array.from({ length: size }, freePort));
    const routes = ports.map((port) => `"nats://127.0.0.1:${port}"`).join(", ");
    const servers = await Promise.all(ports.map((port, index) =>
      NatsServer.start({
        ...more,
        name: `n${index + 1}`,
        awaitHealth: false,
        config: `cluster { name: test, listen: "127.0.0.1:${port}", routes: [${routes}] }\n` +
          config,
      })
    ));
    const cluster = new NatsCluster(servers);
    await cluster.healthy();
    return cluster;
  }

  private constructor(servers: readonly NatsServer[]) {
    this.servers = servers;
  }

  get urls(): string[] {
    return this.servers.map((server) => server.url);
  }

  /** Resolves when a leader of JetStream is elected and every member knows it. */
  async healthy(): Promise<void> {
    await Promise.all(
      this.servers.map((server) =>
        until(`${server.name} knows a meta leader`, async () => {
          const jsz = await server.monitor("jsz");
          return jsz?.meta_cluster?.leader && (await server.monitor("healthz"))?.status === "ok";
        }, 60_000)
      ),
    );
  }

  /** The member that leads a stream, as far as the members know. */
  async leader(stream: string): Promise<NatsServer> {
    return await until(`${stream} has a leader`, async () => {
      for (const server of this.servers) {
        const jsz = await server.monitor("jsz?streams=true&accounts=true");
        for (const account of jsz?.account_details ?? []) {
          for (const detail of account.stream_detail ?? []) {
            const leader = detail.name === stream && detail.cluster?.leader;
            if (leader) return this.servers.find((one) => one.name === leader);
          }
        }
      }
    }, 60_000);
  }

  async stop(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.stop()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}
