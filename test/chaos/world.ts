/**
 * Everything of one run: network, servers, agents, writers, the operator, and where it is noted.
 * @module
 */
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { noPowerDisk } from "../support/power_disk.ts";
import { AGENT } from "../support/real_agent.ts";
import { ChaosAgent, faketimePath, Writers } from "./agents.ts";
import { type Event, HistoryFile } from "./history.ts";
import type { Network } from "./network.ts";
import { ChaosOperator } from "./operator.ts";
import { collect } from "./reading.ts";
import { Random } from "../support/random.ts";
import { Servers } from "./servers.ts";

/** What a run is made of. */
export interface Plan {
  readonly seed: number;
  readonly dir: string;
  readonly network: Network;
  readonly ttlMs: number;
  /** The TTL; less only to see that the checker notices. */
  readonly graceMs: number;
  readonly stores: readonly string[];
  /** The nats-server of each server, and the one that `upgrade server` changes to. */
  readonly programs: readonly string[];
  readonly upgradedServer: string;
  /** What the servers are, for a person. */
  readonly servers: string;
  /** When the servers write to disk: before they acknowledge, or as they do by default. */
  readonly sync: "always" | "default";
  /** Whether the older program takes part. */
  readonly older: boolean;
  /** The program that an upgrade changes to; null where nothing is upgraded. */
  readonly upgradeTo: string | null;
  readonly upgradeFrom: string | null;
}

export const SERVER_NAMES = ["s1", "s2", "s3"];
export const AGENT_NAMES = ["a1", "a2", "a3"];
/** Where the older program runs. */
export const OLDER_NAME = "o1";

/** What a cluster may take, beyond TTL and grace, to elect leaders and to be found again. */
const CLUSTER_MS = 20_000;

/** Grants may finish for so long when an agent is stopped: longer than any writer here writes. */
const DRAIN = "5s";

/** Clients of the socket and of `agent guard` on each host: busy, and bearable for two cores. */
const CLIENTS = 3;
const GUARDS = 1;

/** A run. */
export class World {
  readonly plan: Plan;
  readonly network: Network;
  readonly history: HistoryFile;
  readonly random: Random;
  readonly locks: "shared" | "own";
  readonly servers: Servers;
  readonly passwords: ReadonlyMap<string, string>;
  agents: readonly ChaosAgent[] = [];
  /** The writers beside each agent. */
  writers: readonly Writers[] = [];
  /** The older program; null where it takes no part. */
  older: Writers | null = null;
  operator!: ChaosOperator;
  readonly #grants: GrantTail;

  /** Makes everything and starts it; resolves when the writers run. */
  static async start(plan: Plan): Promise<World> {
    for (const name of ["histories", "logs"]) mkdirSync(join(plan.dir, name), { recursive: true });
    const users = [...AGENT_NAMES, OLDER_NAME];
    const passwords = new Map(users.map((name) => [name, `password-of-${name}`]));
    const servers = await Servers.make({
      network: plan.network,
      names: SERVER_NAMES,
      programs: plan.programs,
      dir: plan.dir,
      passwords,
      syncAlways: plan.sync === "always",
      // Only mounts in a namespace of our own end with us, whatever happens.
      disks: plan.network.kind === "namespaces" && noPowerDisk === null,
    });
    const world = new World(plan, servers, passwords);
    await world.#start();
    return world;
  }

  private constructor(plan: Plan, servers: Servers, passwords: ReadonlyMap<string, string>) {
    this.plan = plan;
    this.network = plan.network;
    this.servers = servers;
    this.passwords = passwords;
    this.random = new Random(plan.seed);
    this.locks = this.random.chance(0.5) ? "shared" : "own";
    this.history = new HistoryFile(join(this.histories, "run.jsonl"));
    this.#grants = new GrantTail(this.histories);
  }

  /** The hosts that hold leases. */
  get nodes(): readonly string[] {
    return this.plan.older ? [...AGENT_NAMES, OLDER_NAME] : AGENT_NAMES;
  }

  get histories(): string {
    return join(this.plan.dir, "histories");
  }

  /** How long after everything is healed a store may take to be granted again. */
  get recoveryMs(): number {
    // An entry that nobody owns has to age out, twice where an overwritten one follows it; then a grace.
    return 3 * this.plan.ttlMs + CLUSTER_MS;
  }

  /** When the store was last granted, as far as it is known now; 0 if never. */
  lastGrantMs(store: string): number {
    return this.#grants.lastMs(store);
  }

  async #start(): Promise<void> {
    const { plan, servers, network } = this;
    for (const server of servers.all) servers.start(server);
    await servers.healthy();
    this.operator = await ChaosOperator.connect(servers.urls, this.history);
    this.history.note({
      kind: "setup",
      seed: plan.seed,
      ttlMs: plan.ttlMs,
      graceMs: plan.graceMs,
      nodes: this.nodes,
      older: plan.older ? [OLDER_NAME] : [],
      stores: plan.stores,
      locks: this.locks,
      network: network.kind,
      recoveryMs: this.recoveryMs,
      servers: plan.servers,
      sync: plan.sync,
    });
    await this.#startAgents();
    this.#startWriters();
  }

  async #startAgents(): Promise<void> {
    const { plan, servers, network } = this;
    const faketime = faketimePath();
    const proxied = this.random.pick(AGENT_NAMES);
    const steppable = this.random.pick(AGENT_NAMES);
    this.agents = await Promise.all(AGENT_NAMES.map((name) => {
      const dir = join(plan.dir, name);
      const locks = this.locks === "shared" ? join(plan.dir, "locks") : join(dir, "locks");
      for (const store of plan.stores) mkdirSync(join(locks, store), { recursive: true });
      return ChaosAgent.start({
        host: network.host(name),
        program: plan.upgradeFrom ?? AGENT,
        dir,
        servers: servers.all.map(({ host, port }) => `${host.ip}:${port}`),
        // On the loopback a proxy is all that can cut an agent off.
        proxied: name === proxied || network.kind === "loopback",
        faketime: name === steppable ? faketime : null,
        lockPath: join(locks, "{store}", "lease.lock"),
        password: this.passwords.get(name)!,
        flags: [
          ...["--ttl", `${plan.ttlMs}ms`, "--grace", `${plan.graceMs}ms`],
          ...["--drain", DRAIN],
        ],
      });
    }));
  }

  #startWriters(): void {
    const { plan, servers, network } = this;
    this.writers = this.agents.map((agent) =>
      Writers.ofAgent({
        node: agent.name,
        socket: agent.socket,
        agent: AGENT,
        stores: plan.stores,
        logs: join(plan.dir, "logs"),
        histories: this.histories,
        seed: this.random.between(1, 2 ** 31),
        clients: CLIENTS,
        guards: GUARDS,
      })
    );
    if (plan.older) {
      this.older = Writers.older(network.host(OLDER_NAME), {
        node: OLDER_NAME,
        urls: servers.urls,
        password: this.passwords.get(OLDER_NAME)!,
        ttlMs: plan.ttlMs,
        stores: plan.stores,
        logs: join(plan.dir, "logs"),
        histories: this.histories,
        seed: this.random.between(1, 2 ** 31),
      });
    }
    for (const writers of [...this.writers, this.older]) writers?.start();
  }

  /** Ends everything in order; returns the statuses with which the agents ended. */
  async finish(): Promise<number[]> {
    await Promise.all([...this.writers, this.older].map((writers) => writers?.finish()));
    this.history.note({ kind: "end" });
    await this.operator.catchUp().catch(() => {});
    const statuses = await Promise.all(this.agents.map((agent) => agent.end("SIGTERM")));
    await this.#stopRest();
    return statuses;
  }

  async #stopRest(): Promise<void> {
    await this.operator.close();
    for (const agent of this.agents) await agent.stopProxy();
    for (const server of this.servers.all) await this.servers.stop(server);
    await this.servers.dispose();
    this.history.close();
  }

  /** The history of the whole run so far. */
  collect(): Event[] {
    const logs = this.plan.stores.map((store) =>
      [store, join(this.plan.dir, "logs", store)] as const
    );
    return collect(this.histories, new Map(logs));
  }
}

/** Follows the histories of the agents' writers while they grow, for when which store was granted. */
class GrantTail {
  readonly #dir: string;
  readonly #read = new Map<string, number>();
  readonly #last = new Map<string, number>();

  constructor(dir: string) {
    this.#dir = dir;
  }

  lastMs(store: string): number {
    for (const name of readdirSync(this.#dir)) {
      if (name !== "run.jsonl" && !name.startsWith("older-")) this.#follow(name);
    }
    return this.#last.get(store) ?? 0;
  }

  #follow(name: string): void {
    const from = this.#read.get(name) ?? 0;
    const text = readFileSync(join(this.#dir, name)).subarray(from).toString("utf8");
    const end = text.lastIndexOf("\n") + 1;
    this.#read.set(name, from + Buffer.byteLength(text.slice(0, end)));
    for (const line of text.slice(0, end).split("\n")) {
      if (!line.includes('"kind":"grant"')) continue;
      const { store, t } = JSON.parse(line) as { store: string; t: number };
      this.#last.set(store, Math.max(t, this.#last.get(store) ?? 0));
    }
  }
}
