/**
 * What goes wrong, at random times, for random lengths.
 * @module
 */
import type { SimNode } from "./node.ts";
import type { Fault } from "./plan.ts";
import { FIRST_REVISION } from "./trace.ts";
import type { World } from "./world.ts";

/** The faults of a world. */
export interface Faults {
  /** No new one begins. */
  stop(): void;
  /** Whatever still goes on ends, and what an operator would put right is put right. */
  heal(): void;
}

/** Starts to break things. */
export function startFaults(world: World): Faults {
  const { plan, scheduler, random } = world;
  const faults = new FaultSet(world);
  let stopped = false;
  const next = () => {
    scheduler.after(random.about(plan.faultEveryMs), () => {
      if (stopped) return;
      faults.begin(random.pick(plan.faults));
      next();
    });
  };
  if (plan.faults.length > 0) next();
  return {
    stop: () => void (stopped = true),
    heal: () => faults.heal(),
  };
}

class FaultSet {
  readonly #world: World;
  /** How to end each fault that goes on. */
  readonly #open = new Set<() => void>();
  #low = 2 ** 40;

  constructor(world: World) {
    this.#world = world;
  }

  begin(fault: Fault): void {
    const { random, nodes, plan } = this.#world;
    const node = random.pick(nodes);
    const store = random.pick(plan.stores);
    switch (fault) {
      case "partition":
        return this.#partition(node, ["up", "down"]);
      case "one_way":
        return this.#partition(node, [random.pick(["up", "down"] as const)]);
      case "reset":
        return node.run?.link.drop();
      case "freeze":
        return this.#freeze();
      case "failover":
        return this.#failover();
      case "jump":
        return this.#jump();
      case "delete_entry":
        return this.#meddle(store, false);
      case "overwrite_entry":
        return this.#meddle(store, true);
      case "remake_bucket":
        return this.#remake("high");
      case "low_bucket":
        return this.#remake("low");
      case "amnesia":
        return this.#remake("amnesia");
      case "pause_agent":
      case "pause_host":
        return this.#pause(node, random.chance(0.5));
      case "crash":
        return this.#crash(node);
      case "reboot":
        return this.#reboot(node);
      case "wipe":
        return this.#wipe(node);
      case "drain":
        return node.shutDown(() => this.#startLater(node));
      case "stepdown":
        return this.#stepdown(node, store);
      case "remake_store":
        return this.#remakeStore(node, store);
      case "full_disk":
        return this.#fullDisk(node);
      case "break_lock":
        return this.#breakLock(node, store);
      case "change_ttl":
        return this.#changeTtl();
    }
  }

  /** Everything that goes on ends. */
  heal(): void {
    const { nodes, older, server, checks, plan } = this.#world;
    for (const end of [...this.#open]) end();
    this.#setTtl(plan.ttlMs);
    for (const node of nodes) {
      node.onWrite = null;
      // An operator restarts those that go by another.
      if ((node.run?.ttlMs ?? plan.ttlMs) !== plan.ttlMs) node.kill();
      for (const client of [...node.clients]) client.vanish();
      // Whoever is about to end takes his time, and his leases with him.
      if (node.run?.agent.state === "draining") node.kill();
      if (node.run === null) node.start();
    }
    older?.stop();
    if (checks.pastLost) {
      // An operator makes the bucket again as it should have been made.
      for (const store of this.#world.plan.stores) server.disturb(store);
      server.remakeEntries(FIRST_REVISION + Math.ceil(this.#world.scheduler.nowMs));
      // Records of before may stand over those of the life that ends here.
      if (checks.amnesiaMs > -Infinity) checks.onAmnesia();
    }
  }

  #for(lengthMs: number, end: () => void): void {
    let over = false;
    const finish = () => {
      if (over) return;
      over = true;
      this.#open.delete(finish);
      end();
    };
    this.#open.add(finish);
    this.#world.scheduler.after(lengthMs, finish);
  }

  /** Short, or long enough for deadlines to pass. */
  #length(): number {
    const { random, plan } = this.#world;
    return random.chance(0.5) ? random.between(50, 2_000) : random.between(0.3, 2) * plan.ttlMs;
  }

  #partition(node: SimNode, directions: ("up" | "down")[]): void {
    const { trace } = this.#world;
    trace.add(node.label, `cut off (${directions.join(" and ")})`);
    for (const direction of directions) node.block(direction);
    this.#for(this.#length(), () => {
      trace.add(node.label, `no longer cut off (${directions.join(" and ")})`);
      for (const direction of directions) node.unblock(direction);
    });
  }

  #freeze(): void {
    const { server, trace } = this.#world;
    if (server.frozen) return;
    trace.add("server", "freezes");
    server.freeze();
    this.#impairServer(() => {
      trace.add("server", "thaws");
      server.thaw();
    });
  }

  #failover(): void {
    const { server, trace, random } = this.#world;
    if (server.electing) return;
    trace.add("server", "has no leader");
    server.electing = true;
    this.#impairServer(() => {
      trace.add("server", "has a leader");
      server.electing = false;
      server.serveStale(random.between(0, 5_000));
    });
  }

  #impairServer(end: () => void): void {
    const world = this.#world;
    world.serverImpairedMs = Infinity;
    world.checks.serverImpaired++;
    this.#for(this.#length(), () => {
      end();
      if (--world.checks.serverImpaired === 0) world.serverImpairedMs = world.scheduler.nowMs;
    });
  }

  #jump(): void {
    const { server, trace, random, plan } = this.#world;
    const ms = random.chance(0.5) ? plan.ttlMs * 1.1 : random.between(0, plan.ttlMs);
    trace.add("server", `its clock jumps ahead by ${Math.round(ms)} ms`);
    server.jump(ms);
    for (const store of plan.stores) server.disturb(store);
  }

  #meddle(store: string, overwrite: boolean): void {
    const { server, trace, nodes, random, checks } = this.#world;
    const before = server.bucketGone ? null : server.entry(store);
    if (before === null) return;
    server.disturb(store);
    trace.add("operator", `${overwrite ? "overwrites" : "deletes"} the entry of ${store}`);
    const node = random.chance(0.5) ? "somebody" : random.pick(nodes).name;
    checks.owners.meddled(store, before.value!.node, overwrite ? node : null);
    server.meddle(store, overwrite ? { node, incarnation: null, address: null } : null);
  }

  #remake(how: "high" | "low" | "amnesia"): void {
    const { server, trace, checks, scheduler, plan } = this.#world;
    if (server.bucketGone) return;
    for (const store of plan.stores) server.disturb(store);
    if (how === "amnesia") {
      trace.add("server", "loses both buckets, and starts them again from nothing");
      checks.onAmnesia();
      server.loseTenures();
      return server.remakeEntries(this.#lowRevision());
    }
    trace.add("operator", `deletes the lease bucket`);
    server.bucketGone = true;
    this.#impairServer(() => {
      trace.add(
        "operator",
        `makes the lease bucket again, ${how === "low" ? "badly" : "properly"}`,
      );
      server.bucketGone = false;
      for (const store of plan.stores) server.disturb(store);
      if (how === "low") checks.onPastLost();
      server.remakeEntries(
        how === "low" ? this.#lowRevision() : FIRST_REVISION + Math.ceil(scheduler.nowMs),
      );
    });
  }

  /**
   * Below every revision there was, yet never the very same again: no compare-and-set can tell two
   * lives of one revision apart.
   */
  #lowRevision(): number {
    return (this.#low -= 1_000_000);
  }

  #pause(node: SimNode, awaitWrite: boolean): void {
    if (node.paused || node.run === null) return;
    // The worst moment is while an acknowledgement is on its way, the worst length about a TTL.
    const { random, plan } = this.#world;
    const lengthMs = awaitWrite ? random.between(0.7, 1.5) * plan.ttlMs : this.#length();
    if (awaitWrite) return void (node.onWrite = () => this.#pauseFor(node, lengthMs));
    this.#pauseFor(node, lengthMs);
  }

  #pauseFor(node: SimNode, lengthMs: number): void {
    const { trace, calm } = this.#world;
    // One that waited for a write may find that the faults have ended.
    if (calm || node.paused || node.run === null) return;
    trace.add(node.label, "is paused");
    node.pause();
    const { run } = node;
    this.#for(lengthMs, () => {
      if (node.run !== run || !node.paused) return;
      trace.add(node.label, "is resumed");
      node.resume();
    });
  }

  #crash(node: SimNode): void {
    if (node.run === null) return;
    node.kill();
    this.#startLater(node);
  }

  #startLater(node: SimNode): void {
    const { random, plan } = this.#world;
    // As systemd restarts it, or as a person does.
    const lengthMs = random.chance(0.6)
      ? random.between(50, 500)
      : random.between(0, 1.5 * plan.ttlMs);
    this.#for(lengthMs, () => {
      if (node.run === null) node.start();
    });
  }

  #reboot(node: SimNode): void {
    if (node.run === null) return;
    node.powerOff();
    this.#startLater(node);
  }

  #wipe(node: SimNode): void {
    if (node.run === null) return;
    node.kill();
    node.wipe();
    this.#startLater(node);
  }

  #stepdown(node: SimNode, store: string): void {
    const { random, plan, trace, scheduler } = this.#world;
    if (node.run === null) return;
    const all = random.chance(0.3);
    const forMs = random.between(0, plan.ttlMs / 2);
    node.ask((agent) => {
      trace.add(node.label, `steps down from ${all ? "every store" : store}`);
      const stores = all ? plan.stores : [store];
      for (const each of stores) node.stepdowns.set(each, (node.stepdowns.get(each) ?? 0) + 1);
      agent.stepdown(all ? null : store, forMs, () => {
        // `forMs` begins now that the store was given up, or could not be in time.
        const untilMs = scheduler.nowMs + node.clock.perfectSpan(forMs);
        for (const each of stores) {
          node.stepdowns.set(each, node.stepdowns.get(each)! - 1);
          node.steppedDownMs.set(each, Math.max(node.steppedDownMs.get(each) ?? 0, untilMs));
        }
      });
    });
  }

  #remakeStore(node: SimNode, store: string): void {
    const { trace, random, scheduler } = this.#world;
    if (node.disk.file(store) === null) return;
    trace.add(node.label, `the directory of ${store} is removed`);
    node.disk.remove(store);
    node.disk.missingMs.set(store, scheduler.nowMs);
    const lengthMs = random.chance(0.5) ? 0 : random.between(0, 2_000);
    this.#for(lengthMs, () => {
      trace.add(node.label, `the directory of ${store} is made again`);
      node.disk.make(store);
      node.disk.missingMs.set(store, scheduler.nowMs);
    });
  }

  #breakLock(node: SimNode, store: string): void {
    const { disk } = node;
    const { trace, scheduler } = this.#world;
    if (disk.broken.has(store)) return;
    trace.add(node.label, `the lock file of ${store} cannot be used`);
    disk.broken.add(store);
    disk.brokenMs.set(store, scheduler.nowMs);
    this.#for(this.#length(), () => {
      trace.add(node.label, `the lock file of ${store} can be used again`);
      disk.broken.delete(store);
      disk.brokenMs.set(store, scheduler.nowMs);
    });
  }

  /** An operator makes the TTL smaller, or puts it right again, and may start all agents anew but one. */
  #changeTtl(): void {
    const { nodes, plan, server, random } = this.#world;
    this.#setTtl(server.ttlMs < plan.ttlMs ? plan.ttlMs : random.between(0.2, 0.9) * plan.ttlMs);
    if (random.chance(0.5)) return;
    const missed = random.pick(nodes);
    for (const node of nodes) if (node !== missed) this.#crash(node);
  }

  #setTtl(ttlMs: number): void {
    const { nodes, plan, scheduler, server, random, trace } = this.#world;
    if (server.ttlMs === ttlMs) return;
    trace.add("operator", `changes the TTL from ${server.ttlMs} ms to ${ttlMs} ms`);
    for (const store of plan.stores) server.disturb(store);
    server.ttlMs = ttlMs;
    for (const node of nodes) scheduler.after(random.between(0, 2_000), () => node.lookAtBucket());
  }

  #fullDisk(node: SimNode): void {
    const { disk } = node;
    const { scheduler, trace } = this.#world;
    if (disk.full) return;
    trace.add(node.label, "its disk is full");
    disk.full = true;
    this.#for(this.#length(), () => {
      trace.add(node.label, "its disk has room again");
      disk.full = false;
      disk.fullMs = scheduler.nowMs;
    });
  }
}
