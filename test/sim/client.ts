/**
 * Processes that write: they guard, verify, release, run over their time, die, and leave children
 * behind that hold the lock.
 * @module
 */
import type { Client, Granted } from "../../src/agent/types.ts";
import type { Refusal } from "../../src/lease/errors.ts";
import type { GrantLog } from "./checks/grants.ts";
import type { Description } from "./disk.ts";
import type { Run, SimNode } from "./node.ts";

/** What a process asks for. */
export interface Wish {
  readonly store: string;
  readonly waitMs: number;
  readonly shared: boolean;
  readonly waitLease: boolean;
  readonly passLock: boolean;
  readonly follow: boolean;
}

/** One process with one guard. */
export class SimClient implements Client {
  readonly id: number;
  readonly pid: number;
  readonly node: SimNode;
  readonly wish: Wish;
  /** The agent that it asked. */
  run: Run | null = null;
  /** When its guard reached the agent, by the perfect clock. */
  arrivedMs = Infinity;
  grant: GrantLog | null = null;
  token = "";
  /** Whether it was told that its token is dead, or let it go itself. */
  tokenDead = false;
  /** Whether it has asked to be rid of its grant. */
  lettingGo = false;
  answered = false;
  over = false;
  /** The deadline it was last told, by the perfect clock. */
  #deadlineMs = 0;
  #passed: Description | null = null;
  /** Whether its connection is gone while it, or a child of it, writes on. */
  #orphan = false;
  readonly #holdMs: number;
  readonly #whenOver: () => void;

  constructor(
    node: SimNode,
    wish: Wish,
    { holdMs, whenOver }: { holdMs: number; whenOver: () => void },
  ) {
    this.node = node;
    this.wish = wish;
    this.pid = node.world.nextProcess();
    this.id = this.pid;
    this.#holdMs = holdMs;
    this.#whenOver = whenOver;
    node.alive.add(this.pid);
    node.clients.add(this);
  }

  /** Whether its connection is gone, so that it hears no answers. */
  get #isDeaf(): boolean {
    return this.#orphan || (this.over && !this.lettingGo);
  }

  get #world() {
    return this.node.world;
  }

  /** Asks for its grant. */
  start(): void {
    const { node, wish } = this;
    if (node.run === null) return this.#end();
    const { run } = node;
    node.ask((agent) => {
      if (this.over) return;
      this.run = run;
      this.arrivedMs = this.#world.scheduler.nowMs;
      agent.guard(this, wish, {
        ok: (granted) => this.#onGranted(granted),
        fail: (refusal) => {
          this.answered = true;
          this.#world.checks.refused(this, refusal);
          this.#end();
        },
      });
    });
  }

  #onGranted(granted: Granted): void {
    const { run, node, wish } = this;
    this.answered = true;
    this.token = granted.token;
    const description = run!.locks.description(granted.fd);
    this.grant = this.#world.checks.granted(this, granted, description);
    this.#deadlineMs = node.clock.perfectMs(granted.deadlineMs);
    if (wish.passLock) this.#passed = run!.locks.pass(granted.fd);
    const { random, scheduler } = this.#world;
    scheduler.after(this.#holdMs, () => this.#finish());
    if (random.chance(0.4)) {
      scheduler.after(random.between(0, this.#holdMs * 1.1), () => this.#verify());
    }
  }

  /** Asks whether it may still write; some ask too late, or about another store. */
  #verify(): void {
    const { wish, token, run, node } = this;
    if (run === null || node.run !== run || this.#orphan) return;
    const { random, checks, plan, scheduler } = this.#world;
    const store = random.chance(0.05) ? random.pick(plan.stores) : wish.store;
    node.ask((agent) => {
      if (this.#orphan) return;
      const askedMs = scheduler.nowMs;
      const dead = this.tokenDead;
      agent.verify({ token, store }, {
        ok: (verified) => {
          if (this.#isDeaf) return;
          checks.verified(this, { ...verified, askedMs, dead, asked: store });
        },
        fail: (refusal) => {
          if (!this.#isDeaf) checks.verifyFailed(this, refusal, store);
        },
      });
    });
  }

  // ---- what the agent tells ----------------------------------------------------------------

  lost(told: { token: string }): void {
    const { random, scheduler, checks, plan } = this.#world;
    if (this.over || this.#orphan) return;
    checks.lost(this, told.token);
    this.tokenDead = true;
    // Some stop at once, some within the time that a guarded command is given.
    scheduler.after(random.between(0, plan.ttlMs / 3), () => this.#finish());
  }

  deadline(change: "expiring" | "renewed", told: { token: string; deadlineMs: number }): void {
    if (this.over || this.#orphan) return;
    this.#world.checks.deadline(this, change, told);
    if (change === "renewed") this.#deadlineMs = this.node.clock.perfectMs(told.deadlineMs);
  }

  readonly congested = false;

  onDrain(): void {}

  changed(): void {}

  // ---- its end -----------------------------------------------------------------------------

  #finish(): void {
    if (this.over || this.#orphan) return;
    const { random } = this.#world;
    const { run, node } = this;
    if (run === null || node.run !== run) return this.#end();
    if (random.chance(0.75)) return this.#release(run);
    if (this.wish.passLock && !this.#world.calm && random.chance(0.6)) return this.#beOrphaned();
    this.vanish();
  }

  #release(run: Run): void {
    this.#world.checks.ended(this);
    this.node.ask((agent) => {
      const wasDead = this.tokenDead;
      this.lettingGo = true;
      agent.release(this.token, {
        ok: () => this.#world.checks.released(this, { wasDead, refusal: null }),
        fail: (refusal: Refusal) => this.#world.checks.released(this, { wasDead, refusal }),
      });
      this.tokenDead = true;
      if (this.#world.random.chance(0.1) && this.node.run === run) this.#verify();
      agent.clientGone(this);
    });
    this.#end();
  }

  /** It dies, and its connection with it. */
  vanish(): void {
    if (this.over) return;
    const wasOrphan = this.#orphan;
    this.#end();
    if (this.run === null || this.node.run !== this.run || wasOrphan) return;
    this.node.ask((agent) => agent.clientGone(this));
  }

  /** It is killed, but its child writes on until the deadline that was known, with the lock. */
  #beOrphaned(): void {
    this.#orphan = true;
    this.tokenDead = true;
    this.node.alive.delete(this.pid);
    this.node.ask((agent) => agent.clientGone(this));
    this.#writeOn();
  }

  #writeOn(): void {
    const { scheduler, random } = this.#world;
    const leftMs = this.#deadlineMs - scheduler.nowMs;
    const holdMs = random.chance(0.5) ? leftMs : random.between(0, leftMs);
    scheduler.after(holdMs, () => this.#end());
  }

  /**
   * Its agent is gone. Some notice at once; some write on to their deadline: those who were passed
   * the lock may, some of them dead themselves while a child of theirs goes on.
   */
  onAgentGone(): void {
    if (this.over || this.#orphan) return;
    const { random } = this.#world;
    if (this.grant === null || (this.#passed === null && random.chance(0.5))) return this.#end();
    this.#orphan = true;
    if (this.#passed !== null && random.chance(0.5)) this.node.alive.delete(this.pid);
    this.#writeOn();
  }

  onHostDown(): void {
    this.#end();
  }

  #end(): void {
    if (this.over) return;
    this.over = true;
    const { node } = this;
    this.#world.checks.ended(this);
    node.alive.delete(this.pid);
    node.clients.delete(this);
    if (this.#passed !== null) node.disk.close(this.wish.store, this.#passed);
    this.#passed = null;
    this.#whenOver();
  }
}
