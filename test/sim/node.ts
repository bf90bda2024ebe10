/**
 * A host with its agent: the real {@linkcode Agent} over simulated ports. It can be paused, killed,
 * restarted, rebooted.
 * @module
 */
import { Agent } from "../../src/agent/agent.ts";
import type { Observer } from "../../src/agent/types.ts";
import type { LeaseNote } from "../../src/lease/state.ts";
import type { SimClient } from "./client.ts";
import { SimClock, SimTimers } from "./clocks.ts";
import { SimCoordinator } from "./coordinator.ts";
import { type SimDisk, SimLockFiles } from "./disk.ts";
import { Link } from "./link.ts";
import { SimMemory, StateDir } from "./memory.ts";
import { short } from "./trace.ts";
import type { World } from "./world.ts";

/** One run of the agent. */
export interface Run {
  readonly agent: Agent;
  readonly incarnation: string;
  /** Tells processes apart whatever they are called. */
  readonly process: number;
  readonly coordinator: SimCoordinator;
  readonly locks: SimLockFiles;
  readonly memory: SimMemory;
  readonly link: Link;
  /** The TTL that it goes by; null until it was connected. */
  ttlMs: number | null;
  /** Whether the bucket had another when it was last looked at. */
  contradicted: boolean;
}

const NEW_RUN = { ttlMs: null, contradicted: false };

/** A host. */
export class SimNode {
  readonly world: World;
  /** What it calls itself; two hosts may share one. */
  readonly name: string;
  /** What the timeline calls it. */
  readonly label: string;
  readonly clock: SimClock;
  readonly disk: SimDisk;
  state = new StateDir();
  run: Run | null = null;
  paused = false;
  /** What is to happen as soon as a write of an entry is on its way. */
  onWrite: (() => void) | null = null;
  /** How many faults block its messages, by direction. */
  readonly blocked = { up: 0, down: 0 };
  /** The last time it was paused, or not running. */
  impairedMs = -Infinity;
  /** By store: when an entry of a program without headers was last read here, state kept since. */
  readonly sawOlderMs = new Map<string, number>();
  /** By store: how many step-downs are under way. */
  readonly stepdowns = new Map<string, number>();
  /** By store: until when it was stepped down from. */
  readonly steppedDownMs = new Map<string, number>();
  readonly clients = new Set<SimClient>();
  /** Processes of this host that run. */
  readonly alive = new Set<number>();
  #generation = 0;
  #backlog: { timer: boolean; run: () => void }[] = [];

  constructor(world: World, index: number, options: { name: string; disk: SimDisk; rate: number }) {
    this.world = world;
    this.name = options.name;
    this.label = `host${index}`;
    this.disk = options.disk;
    const offsetMs = world.random.between(0, 1e6);
    this.clock = new SimClock(world.scheduler, options.rate, offsetMs);
  }

  // ---- what happens on the node ------------------------------------------------------------

  /** Runs something in the agent's process: now, once it is resumed, or never if it is gone. */
  deliver(generation: number, timer: boolean, run: () => void): void {
    if (generation !== this.#generation) return;
    if (this.paused) return void this.#backlog.push({ timer, run });
    run();
    this.world.checks.afterEvent(this);
  }

  /** Runs something a client of this host asks of the agent. */
  ask(run: (agent: Agent) => void): void {
    const { run: current } = this;
    if (current === null) return;
    this.deliver(this.#generation, false, () => run(current.agent));
  }

  /** Whoever is woken up finds everything at once; timers and messages in no certain order. */
  resume(): void {
    this.paused = false;
    this.impairedMs = this.world.scheduler.nowMs;
    const backlog = this.#backlog;
    this.#backlog = [];
    const first = this.world.random.chance(0.5);
    const generation = this.#generation;
    for (const isTimer of [first, !first]) {
      for (const { timer, run } of backlog) {
        if (timer === isTimer) this.deliver(generation, timer, run);
      }
    }
  }

  block(direction: "up" | "down"): void {
    if (this.run === null) this.blocked[direction]++;
    else this.run.link.block(direction);
  }

  unblock(direction: "up" | "down"): void {
    if (this.run === null) this.blocked[direction]--;
    else this.run.link.unblock(direction);
  }

  pause(): void {
    this.paused = true;
    this.impairedMs = this.world.scheduler.nowMs;
  }

  // ---- its agent ---------------------------------------------------------------------------

  start(): void {
    const { world, clock, name } = this;
    const generation = ++this.#generation;
    const process = world.nextProcess();
    const incarnation = `i${process}`;
    const link = new Link(world, this.blocked);
    const timers = new SimTimers(
      world.scheduler,
      world.random,
      clock,
      (run) => this.deliver(generation, true, run),
    );
    const perfectMs = () => world.scheduler.nowMs;
    const coordinator = new SimCoordinator({
      link,
      timers,
      self: { node: name, incarnation, address: `http://${this.label}` },
      process,
      ttlMs: () => this.run?.ttlMs ?? world.server.ttlMs,
      tellsTtl: world.mutations.ttlRecord,
      deliver: (run) => this.deliver(generation, false, run),
      onPut: () => {
        const { onWrite } = this;
        this.onWrite = null;
        if (onWrite !== null) world.scheduler.after(0, onWrite);
      },
      perfectMs,
    });
    coordinator.onRead = (store, read) => {
      if (read.kind === "entry" && read.incarnation === null) {
        this.sawOlderMs.set(store, perfectMs());
      }
    };
    const { mutations } = world;
    const locks = new SimLockFiles({
      disk: this.disk,
      clock,
      timers,
      noticeMs: () => world.random.between(0, 25),
      perfectMs,
      excludes: mutations.flock,
      probes: mutations.leftovers,
      noticesReplaced: mutations.lockCurrent,
    });
    const memory = new SimMemory(this.state, {
      incarnation,
      nowMs: clock.bootMs(),
      alive: (pid) => this.alive.has(pid),
      mutations,
      strangers: world.incarnations,
    });
    world.incarnations.add(incarnation);
    const agent = new Agent({
      node: name,
      incarnation,
      address: `http://${this.label}`,
      graceMs: world.plan.graceMs === world.plan.ttlMs ? undefined : world.plan.graceMs,
      interestMs: world.plan.interestMs,
      drainMs: world.plan.drainMs,
      maxWaiters: 10_000,
      maxGrants: 1_024,
      maxLocks: 10_000,
      standalone: null,
      rules: world.rules,
    }, {
      clock,
      timers,
      coordinator,
      locks,
      memory,
      newToken: () => `t${world.nextToken()}`,
      observer: this.#observer(),
    });
    this.run = { agent, incarnation, process, coordinator, locks, memory, link, ...NEW_RUN };
    world.runs.set(process, this.run);
    if (world.plan.pinned) agent.setPinned(new Set(world.plan.stores));
    link.onChange = (connected) => this.#onLink(generation, connected);
    link.dial();
    world.trace.add(this.label, `starts as ${name}, incarnation ${incarnation}`);
  }

  #onLink(generation: number, connected: boolean): void {
    const { world } = this;
    this.deliver(generation, false, () => {
      const { agent, link } = this.run!;
      // Told late: what is so by now counts.
      if (connected !== link.connected) return;
      world.trace.add(this.label, connected ? "is connected" : "is disconnected");
      if (connected) this.#lookAtBucket(this.run!);
      agent.setConnected(connected);
    });
  }

  /** The bucket's TTL may have changed: the agent hears of it if it is connected. */
  lookAtBucket(): void {
    this.deliver(this.#generation, false, () => {
      if (this.run?.link.connected) this.#lookAtBucket(this.run);
    });
  }

  /** The first TTL that is found is gone by; while the bucket has another, the smaller of the two counts. */
  #lookAtBucket(run: Run): void {
    const { server, mutations } = this.world;
    const ttlMs = run.ttlMs ??= server.ttlMs;
    const countsMs = Math.min(ttlMs, server.ttlMs);
    // Without the margin rule, deadlines count the whole TTL.
    run.agent.setTtl(mutations.margin ? countsMs : countsMs / 0.98);
    run.contradicted = ttlMs !== server.ttlMs;
    run.agent.setMisconfigured(run.contradicted ? "the bucket has another TTL" : null);
  }

  #observer(): Observer {
    const { world } = this;
    return {
      note: (store, note) => {
        if (note.type === "proven") return world.checks.proven(this, store);
        if (!world.trace.on) return;
        world.trace.add(this.label, `${store}: ${describeNote(note)}`);
      },
      guarded: () => {},
      grantLost: () => {},
      problem: () => {},
    };
  }

  /** The agent is gone at once. Its clients' connections break; passed descriptors stay open. */
  kill(): void {
    const { run, world } = this;
    if (run === null) return;
    world.trace.add(this.label, "its agent is killed");
    this.#generation++;
    this.#backlog = [];
    this.paused = false;
    this.stepdowns.clear();
    this.run = null;
    this.impairedMs = world.scheduler.nowMs;
    run.link.close();
    run.locks.die();
    world.checks.agentGone(this);
    for (const client of [...this.clients]) client.onAgentGone();
  }

  /** The whole host goes down, with every process. */
  powerOff(): void {
    this.world.trace.add(this.label, "goes down");
    for (const client of [...this.clients]) client.onHostDown();
    this.kill();
    for (const client of [...this.clients]) client.onHostDown();
    this.alive.clear();
    this.state.onReboot();
  }

  /** Its state directory is lost. */
  wipe(): void {
    this.world.trace.add(this.label, "loses its state directory");
    this.state = new StateDir();
    this.sawOlderMs.clear();
  }

  /** The agent ends cleanly, as at SIGTERM; `then` follows. */
  shutDown(then: () => void): void {
    const { run, world } = this;
    if (run === null) return then();
    const generation = this.#generation;
    this.ask((agent) => {
      world.trace.add(this.label, "its agent drains");
      this.impairedMs = world.scheduler.nowMs;
      agent.drain(({ released, remaining }) => {
        world.trace.add(this.label, `has drained: ${released} released, ${remaining} remain`);
        // Whoever drives the agent ends the process after this call has returned.
        world.scheduler.after(0, () => {
          if (generation !== this.#generation) return;
          agent.close();
          this.kill();
          then();
        });
      });
    });
  }
}

function describeNote(note: LeaseNote): string {
  switch (note.type) {
    case "acquired":
      return `has it, epoch ${short(note.epoch)}`;
    case "lost":
      return `lost it (${note.reason}), epoch ${short(note.epoch)}`;
    case "released":
      return `released it ${note.clean ? "cleanly" : "without closing its record"}`;
    case "stale":
      return `epoch ${short(note.epoch)} is stale: ${short(note.recorded)} is on record`;
    case "foreign":
      return `another has it${note.duplicate ? " under our name" : ""}`;
    case "unreachable":
      return `no answer: ${note.reason}`;
    case "stuck":
      return `refused for ${Math.round(note.forMs)} ms, though nobody renews it`;
    case "proven":
      return "proven";
    case "vacant":
      return "nobody has it";
    case "unfit":
      return note.why === null ? "can write it again" : `cannot write it: ${note.why}`;
  }
}
