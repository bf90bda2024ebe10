/**
 * Faults that others had, on the whole: agents, network, coordinator and disks, all simulated.
 * @module
 */
import { expect, test } from "bun:test";
import { Scenario } from "./scenario.ts";

const TTL_MS = 3_000;

test("guard() on another node is granted after TTL and grace when the holder is killed (nats.go#1994, nats-server#6959)", () => {
  const s = new Scenario();
  expect(s.guard(0).granted).not.toBeNull();
  // Renewed often before that.
  s.pass(4 * TTL_MS);
  s.node(0).kill();
  const waiter = s.guard(1, { waitMs: 60_000, waitLease: true }, 0);
  s.until(() => s.world.server.entry("one")?.value?.node !== "alpha", TTL_MS + 1_000);
  s.until(() => waiter.granted !== null, TTL_MS + 500);
});

test("guard() that waits for the lease wakes by timer, with no event for an expiry (nats-server#6710, nats.py#966)", () => {
  const s = new Scenario();
  s.guard(0);
  s.world.server.subscribers.length = 0;
  const waiter = s.guard(1, { waitMs: 60_000, waitLease: true });
  s.node(0).powerOff();
  s.until(() => waiter.granted !== null, 2 * TTL_MS + 1_500);
});

test("deadlines do not notice a wall clock that is stepped an hour (etcd#12291)", () => {
  const s = new Scenario();
  const writer = s.guard(0, { follow: true });
  const leftBefore = writer.granted!.deadlineMs - s.node(0).clock.bootMs();
  for (const step of [3_600_000, -7_200_000]) {
    s.node(0).clock.wallStepMs += step;
    s.pass(TTL_MS);
    expect(writer.lostKind).toBeNull();
    expect(s.held(0)).toBe(true);
  }
  const leftAfter = writer.renewals.at(-1)! - s.node(0).clock.bootMs();
  expect(Math.abs(leftAfter - leftBefore)).toBeLessThan(TTL_MS);
});

test("two agents of one name never both grant, and each sees the other (kubernetes#58302, #61151)", () => {
  const s = new Scenario({ duplicate: true });
  expect(s.guard(0).granted).not.toBeNull();
  const second = s.guard(1, { waitMs: 2 * TTL_MS, waitLease: true }, 2 * TTL_MS + 2_000);
  expect(second.refusal?.kind).toBe("not_holder");
  expect(s.held(1)).toBe(false);
  expect(s.world.trace.lines.some((line) => line.includes("another has it under our name"))).toBe(
    true,
  );
});

test("a clean end waits for grants, then the next holder is granted at once (kubernetes#139991, client-go#728)", () => {
  const s = new Scenario();
  const writer = s.guard(0);
  const next = s.guard(1, { waitMs: 60_000, waitLease: true });
  let ended = false;
  s.node(0).shutDown(() => ended = true);
  s.pass(500);
  expect(next.granted).toBeNull();
  writer.release();
  expect(s.until(() => next.granted !== null, 1_000)).toBeLessThan(300);
  s.until(() => ended, 1_000);
});

test("a lease whose grant does not finish in the drain is not released: it ages out", () => {
  const s = new Scenario();
  s.guard(0);
  const next = s.guard(1, { waitMs: 60_000, waitLease: true });
  const fromMs = s.world.scheduler.nowMs;
  s.node(0).shutDown(() => {});
  s.until(() => next.granted !== null, 3 * TTL_MS + 2_000);
  expect(s.world.scheduler.nowMs - fromMs).toBeGreaterThan(TTL_MS);
});

test("an agent killed and restarted grants again within a second, with no failover (client-go#448)", () => {
  const s = new Scenario();
  s.guard(0).release();
  s.node(0).kill();
  s.node(0).start();
  const writer = s.guard(0, { waitMs: 1_000, waitLease: true }, 0);
  s.until(() => writer.granted !== null, 1_000);
});

test("an agent restarted while a client of its past writes on waits the grace out (sanlock#1)", () => {
  const s = new Scenario();
  s.guard(0);
  s.node(0).kill();
  s.node(0).start();
  s.pass(500);
  expect(s.guard(0).refusal?.kind).toBe("grace");
});

test("an agent restarted while what a dead client left has the lock waits the grace out", () => {
  const s = new Scenario();
  const writer = s.guard(0, { passLock: true });
  s.node(0).run!.locks.pass(writer.granted!.fd);
  s.node(0).kill();
  s.node(0).alive.delete(writer.pid);
  s.node(0).start();
  s.pass(500);
  expect(s.guard(0).refusal?.kind).toBe("grace");
});

test("a stalled holder that wakes retakes nothing (patroni#2787)", () => {
  const s = new Scenario();
  const old = s.guard(0);
  s.node(0).pause();
  const next = s.guard(1, { waitMs: 60_000, waitLease: true }, 0);
  s.until(() => next.granted !== null, 2 * TTL_MS + 2_000);
  const { epoch } = next.granted!;
  s.node(0).resume();
  s.pass(2 * TTL_MS);
  expect(old.lostKind).toBe("unavailable");
  expect(s.guard(0).refusal).toMatchObject({ kind: "not_holder", holder: { node: "beta", epoch } });
  expect(next.verify().refusal).toBeNull();
  expect(s.held(1)).toBe(true);
});

test("release() after the lease went tells so, and leaves the new holder alone (jedis-lock#2, spring-integration#2661)", () => {
  const s = new Scenario();
  const old = s.guard(0);
  s.node(0).pause();
  const next = s.guard(1, { waitMs: 60_000, waitLease: true }, 0);
  s.until(() => next.granted !== null, 2 * TTL_MS + 2_000);
  const told = old.release();
  s.node(0).resume();
  s.pass(500);
  expect(told.refusal?.kind).toBe("lost");
  expect(s.world.server.entry("one")?.value?.node).toBe("beta");
  const verify = next.verify();
  s.pass(500);
  expect(verify.ok?.epoch).toBe(next.granted!.epoch);
});

test("a client that dies frees its grant and its lock (etcd#17470)", () => {
  const s = new Scenario();
  const dead = s.guard(0);
  const next = s.guard(0, { waitMs: 10_000 });
  expect(next.granted).toBeNull();
  dead.die();
  s.until(() => next.granted !== null, 500);
});

test("a coordinator without a leader for less than TTL less the margin loses nothing (consul#1162)", () => {
  const s = new Scenario({ ttlMs: 15_000, graceMs: 15_000 });
  const writer = s.guard(0, { follow: true });
  // From just after a renewal, so that the election is longer than the time between two.
  s.until(() => writer.renewals.length > 0, 6_000);
  s.world.server.electing = true;
  s.pass(13_000);
  s.world.server.electing = false;
  s.pass(5_000);
  expect(writer.lostKind).toBeNull();
  expect(s.held(0)).toBe(true);
});

test("a store forgotten and asked for again is one store: what its past left behind stays unseen", () => {
  const s = new Scenario();
  s.guard(0).release();
  const { disk } = s.node(0);
  disk.remove("one");
  // Nothing to write here: the store is given up and forgotten, with wakes still to come.
  expect(s.guard(0).refusal?.kind).toBe("unknown_store");
  s.until(() => s.node(0).run!.agent.inspect("one") === null, 5_000);
  disk.make("one");
  const again = s.guard(0, { waitMs: 1_000 });
  expect(again.granted).not.toBeNull();
  const { store } = s.node(0).run!.agent.inspect("one")!;
  s.pass(20_000);
  expect(s.node(0).run!.agent.inspect("one")!.store).toBe(store);
});
