/**
 * Two nodes under load whose agents and guards are killed at random, and what the writers saw.
 *
 * Writers append to one log a store, shared by the nodes, while each node locks files of its own: so
 * between nodes only the lease protects. Appends are in one order for all, so two grants overlapped
 * if, and only if, their lines in a log are interleaved. No clock is compared.
 * @module
 */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { processStartTime } from "../../src/sys/proc.ts";
import { Random } from "./random.ts";
import { AGENT, RealAgent, type RealAgentOptions } from "./real_agent.ts";
import { reap, reaped } from "./reaper.ts";

/**
 * Writes lines `GRANT EPOCH NODE N PID BOOT` to the log for as long as it was told, about every 10 ms.
 * BOOT is CLOCK_BOOTTIME in seconds: for people, who compare it with logs; nothing is decided by it.
 */
export const WRITER = `
exec 9<> <(:)
for ((i = 0; i < $2; i++)); do
  read -r boot _ < /proc/uptime
  echo "$ZIT_LEASE_TOKEN $ZIT_LEASE_EPOCH $ZIT_LEASE_NODE $i $$ $boot" >> "$1"
  read -rt 0.01 -u 9
done
true`;

/** What the storm does to the fleet, with how often. */
const DEEDS = { agent: 8, guard: 7, both: 3, group: 2, stop: 2 } as const;
type Deed = keyof typeof DEEDS;

/** Done; no agent; not now; lost; killed by us. */
const EXPECTED = new Set([0, 69, 75, 79, 137]);

/** How a storm is set up. */
export interface StormOptions {
  readonly seed: number;
  readonly stores: readonly string[];
  /** Where the stores' logs are. */
  readonly logs: string;
  readonly start: (node: string, more?: Partial<RealAgentOptions>) => Promise<RealAgent>;
}

/** A process that is told from a later one of its number. */
interface Started {
  readonly pid: number;
  readonly startTime: number | null;
}

/** The fleet. */
export class KillStorm {
  readonly agents = new Map<string, RealAgent>();
  /** How often guards ended with each status. */
  readonly exits = new Map<number, number>();
  /** Guards that ended with a status for which there is no reason here. */
  readonly oddities: string[] = [];
  /** How often each was done. */
  readonly deeds = new Map<Deed, number>();
  readonly #options: StormOptions;
  readonly #random: Random;
  readonly #guards = new Map<number, { node: string; store: string }>();
  /** Everything that guards started, as seen just before they were killed. */
  readonly #orphans: Started[] = [];
  /** What happened when, a line each; and every agent that ever ran. */
  readonly #events: string[] = [];
  readonly #ran: RealAgent[] = [];
  #workers: Promise<void>[] = [];
  #stopping = false;

  private constructor(options: StormOptions) {
    this.#options = options;
    this.#random = new Random(options.seed);
  }

  /** Starts two agents, and a writer for each of them and each store. */
  static async begin(options: StormOptions): Promise<KillStorm> {
    const storm = new KillStorm(options);
    for (const node of ["alpha", "beta"]) {
      const agent = await storm.#start(node);
      for (const store of options.stores) agent.makeStore(store);
      storm.agents.set(node, agent);
      for (const store of options.stores) storm.#workers.push(storm.#work(node, store));
    }
    return storm;
  }

  /** Does `count` things to the fleet, one after the other. */
  async rage(count: number): Promise<void> {
    for (let i = 0; i < count; i++) {
      await Bun.sleep(this.#random.between(50, 600));
      await this.#strike();
    }
  }

  /** Lets all guards end. */
  async calm(): Promise<void> {
    this.#stopping = true;
    await Promise.all(this.#workers);
  }

  /** What killed guards left that still runs. */
  orphans(): number[] {
    return this.#orphans.filter(({ pid, startTime }) =>
      startTime !== null && processStartTime(pid) === startTime
    ).map(({ pid }) => pid);
  }

  /**
   * Keeps all there is to find out what went wrong: the writers' logs, what was done when, and each
   * agent's log and state directory. Returns where.
   */
  keepEvidence(): string {
    const kept = mkdtempSync(join(tmpdir(), `kill-storm-${this.#options.seed}-`));
    cpSync(this.#options.logs, join(kept, "stores"), { recursive: true });
    writeFileSync(join(kept, "events"), this.#events.join("\n") + "\n");
    for (const { dir, state, pid, options: { node } } of this.#ran) {
      const target = join(kept, `${node}-${pid}`);
      mkdirSync(target);
      cpSync(join(dir, "log"), join(target, "log"));
      cpSync(state, join(target, "state"), { recursive: true });
    }
    return kept;
  }

  async #start(node: string, more?: Partial<RealAgentOptions>): Promise<RealAgent> {
    const agent = await this.#options.start(node, more);
    this.#ran.push(agent);
    this.#note(`agent ${node} ${agent.pid} is ready`);
    return agent;
  }

  #note(what: string): void {
    this.#events.push(`${(bootTimeMs() / 1_000).toFixed(3)} ${what}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping = true;
    for (const pid of this.#guards.keys()) kill(pid);
    await Promise.all(this.#workers);
    for (const agent of this.agents.values()) await agent[Symbol.asyncDispose]();
  }

  async #work(node: string, store: string): Promise<void> {
    while (!this.#stopping) {
      const lines = this.#random.between(1, 60);
      const patience = this.#random.between(0, 2) === 0
        ? ["--wait-lease", "--wait", "3s"]
        : ["--wait", "1s"];
      const log = join(this.#options.logs, store);
      const { socket } = this.agents.get(node)!;
      const child = Bun.spawn({
        cmd: [AGENT, "guard", store, ...patience, "--", "bash", "-c", WRITER, "-", log, `${lines}`],
        env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: socket },
        stdin: "ignore",
        stdout: "ignore",
        stderr: "pipe",
      });
      const stderr = new Response(child.stderr).text();
      reap(child.pid);
      this.#guards.set(child.pid, { node, store });
      this.#note(`guard ${child.pid} ${node} ${store} ${patience.join(" ")} ${lines} lines`);
      await child.exited;
      reaped(child.pid);
      this.#guards.delete(child.pid);
      const status = child.signalCode === null ? child.exitCode! : 128 + 9;
      this.exits.set(status, (this.exits.get(status) ?? 0) + 1);
      this.#note(`guard ${child.pid} ${node} ${store} exit ${status} ${await stderr}`.trim());
      if (!EXPECTED.has(status)) {
        this.oddities.push(`guard ${child.pid} ${node} ${store} exit ${status}: ${await stderr}`);
      }
      // Refused: somebody has it, or there is no agent. Not all the time, or nothing else runs.
      if (status !== 0) await Bun.sleep(this.#random.between(20, 200));
    }
  }

  async #strike(): Promise<void> {
    const deed = this.#random.weighted(DEEDS);
    this.deeds.set(deed, (this.deeds.get(deed) ?? 0) + 1);
    const node = this.#random.pick([...this.agents.keys()]);
    if (deed === "guard" || deed === "group") return this.#killGuard(node, deed === "group");
    const agent = this.agents.get(node)!;
    if (deed === "both") this.#killGuard(node, false);
    this.#note(`${deed === "stop" ? "stop" : "kill"} agent ${node} ${agent.pid}`);
    if (deed === "stop") await agent.end("SIGTERM");
    else await agent.end("SIGKILL");
    // As systemd does: at once, or a moment later.
    await Bun.sleep(this.#random.between(0, 150));
    const { state, locks, socket } = agent;
    this.agents.set(node, await this.#start(node, { state, locks, socket }));
  }

  #killGuard(node: string, withGroup: boolean): void {
    const all = [...this.#guards].filter(([_, guard]) => guard.node === node);
    if (all.length === 0) return;
    const [pid] = this.#random.pick(all);
    const children = childrenOf(pid);
    for (const child of children) {
      this.#orphans.push({ pid: child, startTime: processStartTime(child) });
    }
    this.#note(`kill guard ${pid} of ${node}${withGroup ? ", and" : "; not"} ${children}`);
    kill(pid);
    if (withGroup) { for (const child of children) kill(child); }
  }
}

/** An overlap, or an epoch that went back, in words; the lines that show it are in it. */
export function faultsOf(log: string): string[] {
  const faults: string[] = [];
  const over = new Set<string>();
  let last: { grant: string; epoch: number; line: string } | null = null;
  for (const line of log.split("\n").slice(0, -1)) {
    const [grant, epochText] = line.split(" ");
    const epoch = Number(epochText);
    if (last !== null && grant !== last.grant) {
      over.add(last.grant);
      if (epoch < last.epoch) faults.push(`epoch went back: ${last.line} then ${line}`);
    }
    if (over.has(grant!)) faults.push(`overlap: ${last?.line} then ${line}`);
    last = { grant: grant!, epoch, line };
  }
  return faults;
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}

function childrenOf(parent: number): number[] {
  return readdirSync("/proc").map(Number).filter((pid) => {
    if (!(pid > 0)) return false;
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
      return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === parent;
    } catch {
      return false;
    }
  });
}
