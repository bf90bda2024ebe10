/**
 * A fleet without chance: what happens, happens because a test says so. The checkers of holds and
 * entries watch; grants are the test's own to check.
 * @module
 */
import type { Client, Granted, GuardParams, Verified } from "../../src/agent/types.ts";
import type { Kind, Refusal } from "../../src/lease/errors.ts";
import type { SimNode } from "./node.ts";
import type { Plan } from "./plan.ts";
import { World } from "./world.ts";

const CALM: Partial<Plan> = {
  ttlMs: 3_000,
  graceMs: 3_000,
  interestMs: 900_000,
  drainMs: 1_000,
  nodes: 2,
  stores: ["one"],
  duplicate: false,
  older: false,
  sharedDisk: false,
  pinned: false,
  serverRate: 1,
  rates: [1, 1],
  latencyMs: 1,
  lossRate: 0,
  slowRate: 0,
  twiceRate: 0,
  muteConflicts: false,
  staleReads: false,
  faults: [],
  clientsPerNode: 0,
};

/** A client that records what it is told. */
export class Caller implements Client {
  readonly id: number;
  readonly pid: number;
  readonly congested = false;
  granted: Granted | null = null;
  refusal: Refusal | null = null;
  lostKind: Kind | null = null;
  /** Deadlines it was told of as renewed. */
  readonly renewals: number[] = [];
  readonly #node: SimNode;

  constructor(node: SimNode) {
    this.#node = node;
    this.pid = node.world.nextProcess();
    this.id = this.pid;
    node.alive.add(this.pid);
  }

  guard(store: string, wish: Partial<GuardParams>): void {
    const params = { waitMs: 0, shared: false, waitLease: false, passLock: false, follow: false };
    this.#node.ask((agent) =>
      agent.guard(this, { ...params, ...wish, store }, {
        ok: (granted) => this.granted = granted,
        fail: (refusal) => this.refusal = refusal,
      })
    );
  }

  /** Asks for a verification; the result fills in when it comes. */
  verify(): { ok: Verified | null; refusal: Refusal | null } {
    const answer: { ok: Verified | null; refusal: Refusal | null } = { ok: null, refusal: null };
    const { token, store } = this.granted!;
    this.#node.ask((agent) =>
      agent.verify({ token, store }, {
        ok: (verified) => answer.ok = verified,
        fail: (refusal) => answer.refusal = refusal,
      })
    );
    return answer;
  }

  /** Lets its grant go; what it is told, once it is. */
  release(): { done: boolean; refusal: Refusal | null } {
    const answer: { done: boolean; refusal: Refusal | null } = { done: false, refusal: null };
    this.#node.ask((agent) =>
      agent.release(this.granted!.token, {
        ok: () => answer.done = true,
        fail: (refusal) => answer.refusal = refusal,
      })
    );
    return answer;
  }

  /** It dies: its connection closes. */
  die(): void {
    this.#node.alive.delete(this.pid);
    this.#node.ask((agent) => agent.clientGone(this));
  }

  onDrain(): void {}

  changed(): void {}

  lost(told: { kind: Kind }): void {
    this.lostKind = told.kind;
  }

  deadline(change: "expiring" | "renewed", told: { deadlineMs: number }): void {
    if (change === "renewed") this.renewals.push(told.deadlineMs);
  }
}

/** A fleet of which nothing happens by itself but what agents do. */
export class Scenario {
  readonly world: World;

  constructor(plan: Partial<Plan> = {}) {
    this.world = new World(1, {
      rule: null,
      trace: true,
      overrides: { plan: { ...CALM, ...plan } },
    });
    this.world.start();
    this.pass(1_000);
  }

  node(index: number): SimNode {
    return this.world.nodes[index];
  }

  /** Lets time pass; throws if a checker found something. */
  pass(ms: number): void {
    const { scheduler, checks, trace } = this.world;
    scheduler.run(scheduler.nowMs + ms, () => checks.violation === null);
    if (checks.violation === null) return;
    throw new Error(`${trace.lines.join("\n")}\n${JSON.stringify(checks.violation)}`);
  }

  /** Asks for a guard, and lets `ms` pass. */
  guard(index: number, wish: Partial<GuardParams> = {}, ms = 200): Caller {
    const caller = new Caller(this.node(index));
    caller.guard("one", wish);
    this.pass(ms);
    return caller;
  }

  /** Lets time pass until it holds, at most `maxMs`; how long it took. */
  until(holds: () => boolean, maxMs: number): number {
    const { scheduler } = this.world;
    const fromMs = scheduler.nowMs;
    while (!holds()) {
      if (scheduler.nowMs - fromMs > maxMs) throw new Error(`It did not hold within ${maxMs} ms`);
      this.pass(10);
    }
    return scheduler.nowMs - fromMs;
  }

  held(index: number): boolean {
    const node = this.node(index);
    const known = node.run?.agent.inspect("one") ?? null;
    return known !== null && known.store.held(node.clock.bootMs(), known.context);
  }
}
