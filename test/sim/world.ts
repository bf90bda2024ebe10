/**
 * Everything of one seed: the fleet, its coordinator, its checkers.
 * @module
 */
import type { Rules } from "../../src/lease/rules.ts";
import { Checks } from "./checks/checks.ts";
import { SimDisk } from "./disk.ts";
import { startFaults } from "./faults.ts";
import { type Mutations, without } from "./mutations.ts";
import { type Run, SimNode } from "./node.ts";
import { Older } from "./older.ts";
import { drawPlan, type Plan, QUIET_MS } from "./plan.ts";
import { Random } from "./random.ts";
import { Scheduler } from "./scheduler.ts";
import { SimServer } from "./server.ts";
import { Trace } from "./trace.ts";
import { keepAsking } from "./workload.ts";

/** How many steps a seed may take: beyond it something spins. */
const MAX_STEPS = 2_000_000;

/** What a test takes in place of what the seed draws. */
export interface Overrides {
  readonly plan?: Partial<Plan>;
}

/** One seed's world. */
export class World {
  readonly random: Random;
  readonly scheduler = new Scheduler();
  readonly plan: Plan;
  readonly rules: Rules;
  readonly mutations: Mutations;
  readonly trace: Trace;
  readonly server: SimServer;
  readonly nodes: SimNode[];
  readonly checks: Checks;
  older: Older | null = null;
  /** Every run there was, by its process. */
  readonly runs = new Map<number, Run>();
  /** Every incarnation there was, of any host. */
  readonly incarnations = new Set<string>();
  /** Set when faults are over: nothing is lost, late or repeated any more. */
  calm = false;
  /** The last time the coordinator was out of order. */
  serverImpairedMs = -Infinity;
  #lastProcess = 0;
  #lastToken = 0;

  constructor(
    seed: number,
    options: { rule: string | null; trace: boolean; overrides?: Overrides },
  ) {
    this.random = new Random(seed);
    this.plan = { ...drawPlan(this.random), ...options.overrides?.plan };
    const { rules, mutations } = without(options.rule);
    this.rules = rules;
    this.mutations = mutations;
    this.trace = new Trace(this.scheduler, options.trace);
    const { ttlMs, serverRate: rate, muteConflicts, staleReads } = this.plan;
    this.server = new SimServer(this.scheduler, this.random, this.trace, {
      ttlMs,
      rate,
      muteConflicts,
      staleReads,
      mutations,
    });
    this.checks = new Checks(this);
    this.server.watcher = this.checks;
    this.nodes = this.#makeNodes();
  }

  #makeNodes(): SimNode[] {
    const { plan } = this;
    const newDisk = () => new SimDisk(() => this.scheduler.nowMs);
    const shared = plan.sharedDisk ? newDisk() : null;
    const names = ["alpha", "beta", "gamma", "delta", "epsilon"];
    return plan.rates.map((rate, index) => {
      const name = plan.duplicate && index === 1 ? names[0] : names[index];
      return new SimNode(this, index, { name, disk: shared ?? newDisk(), rate });
    });
  }

  nextProcess(): number {
    return ++this.#lastProcess;
  }

  nextToken(): number {
    return ++this.#lastToken;
  }

  /** Runs the seed: first with faults, then until everybody had the time to be granted again. */
  run(): void {
    const { scheduler, plan } = this;
    const goOn = () => this.checks.violation === null && scheduler.steps < MAX_STEPS;
    this.start();
    const faults = startFaults(this);
    scheduler.run(plan.safetyMs, goOn);
    faults.stop();
    this.calm = true;
    scheduler.run(plan.safetyMs + QUIET_MS, goOn);
    faults.heal();
    for (const node of this.nodes) for (const store of plan.stores) keepAsking(node, store);
    this.checks.expectGrants();
    const enoughMs = plan.ttlMs + plan.graceMs + 2_000;
    scheduler.run(plan.safetyMs + QUIET_MS + enoughMs, goOn);
    if (goOn()) this.checks.demandGrants();
    if (scheduler.steps >= MAX_STEPS) this.checks.fail("bounded", `more than ${MAX_STEPS} steps`);
  }

  /** Starts everybody. */
  start(): void {
    const { plan } = this;
    for (const node of this.nodes) {
      node.start();
      for (let i = 0; i < plan.clientsPerNode; i++) keepAsking(node);
    }
    this.server.subscribers.push((...told) => this.#tellTenure(...told));
    if (plan.older) this.older = new Older(this);
  }

  #tellTenure(...told: Parameters<SimServer["subscribers"][number]>): void {
    for (const node of this.nodes) {
      const { run } = node;
      if (run === null) continue;
      run.link.tell(() => {
        if (node.run !== run) return;
        run.coordinator.sawRecord(told[0], told[1]);
        node.ask((agent) => agent.onTenure(...told));
      });
    }
  }
}
