import { expect, test } from "bun:test";
import { CONFLICT, entryOf, Harness, ME, ok, tenureOf, TTL_MS, UNKNOWN } from "./harness.ts";

test("handle() releases only once the guarded work is over (kubernetes#139991, client-go#728)", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51);
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  expect(h.requests).toEqual([]);
  h.pass(TTL_MS / 3 + 500);
  // Meanwhile it is kept.
  h.put(ok(52));
  h.end(id);
  expect(h.take("put_tenure").released).toBe("shutdown");
});

test("handle() does not release while a client that is gone may have left a writer behind", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51, { passLock: true });
  const deadlineMs = h.deadlineMs;
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  h.end(id, true);
  expect(h.requests).toEqual([]);
  h.nowMs = deadlineMs - 1;
  h.handle({ type: "tick" });
  expect(h.requests.filter(({ type }) => type !== "put_entry")).toEqual([]);
});

test("handle() does not release while somebody has the lock, whoever that is (ceph-qa-suite#583)", () => {
  const h = new Harness();
  h.acquire(50);
  // A process that an earlier agent's client left behind: nobody here knows of it.
  h.lockFree = false;
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  expect(h.requests).toEqual([]);
  h.pass(200);
  expect(h.requests).toEqual([]);
  h.lockFree = true;
  h.pass(200);
  expect(h.take("put_tenure").released).toBe("shutdown");
});

test("handle() never renews what it is releasing, nor believes in it when an old write is acknowledged (dynamodb-lock-client#116)", () => {
  const h = new Harness();
  h.acquire(50);
  h.pass(TTL_MS / 3 + 500);
  const renewal = h.take("put_entry");
  h.handle({ type: "drain", reason: "stepdown", forMs: 60_000 });
  // First what is in flight.
  expect(h.requests).toEqual([]);
  h.answer(renewal, ok(51));
  const close = h.take("put_tenure");
  h.pass(TTL_MS / 3 + 500);
  expect(h.requests).toEqual([]);
  h.answer(close, ok(3));
  expect(h.take("delete_entry").expect).toBe(51);
  h.answer({ type: "delete_entry", seq: h.store.lease.seq, expect: 51 }, ok(52));
  h.answer(renewal, ok(51));
  expect(h.store.lease.phase).toBe("idle");
  expect(h.held).toBe(false);
});

test("handle() gives up a failed release after some tries, and acquires again when asked (dynamodb-lock-client#116)", () => {
  const h = new Harness();
  h.acquire(50);
  h.handle({ type: "drain", reason: "stepdown", forMs: 10 });
  h.answer(h.take("put_tenure"), UNKNOWN);
  for (let tries = 0; tries < 3; tries++) h.answer(h.take("delete_entry"), UNKNOWN);
  expect(h.requests).toEqual([]);
  h.nowMs += 20;
  h.guard();
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", ME, 50)));
  expect(h.requests).toMatchObject([{ type: "put_entry", expect: 50 }]);
});

test("handle() deletes nobody's entry but its own (jedis-lock#2, spring-integration#2661)", () => {
  const h = new Harness();
  h.acquire(50);
  h.handle({ type: "drain", reason: "stepdown", forMs: 60_000 });
  h.recorded(3);
  h.answer(h.take("delete_entry"), CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  expect(h.requests).toEqual([]);
  expect(h.store.lease.phase).toBe("idle");
});

test("handle() tells nobody of a loss after a release (lockgate#10)", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51);
  h.pass(TTL_MS / 3 + 500);
  const renewal = h.take("put_entry");
  h.end(id);
  h.answer(renewal, CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  expect(h.lost.size).toBe(0);
});

test("handle() leaves its entry to age out while it owes a grace", () => {
  const h = new Harness();
  h.acquire(50, tenureOf("i-beta", 40));
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  // Neither closed nor deleted: beta may still be finishing, whoever comes next.
  expect(h.requests).toEqual([]);
  expect(h.notes.at(-1)).toEqual({ type: "released", clean: false, deleted: false, epoch: 50 });
});

test("handle() waits for its record before it releases a tenure that has just begun", () => {
  const h = new Harness();
  h.handle({ type: "tick" });
  h.put(ok(50));
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  h.tenure(tenureOf("i-beta", 40, true));
  h.recorded();
  expect(h.take("put_tenure").released).toBe("shutdown");
});

test("handle() grants again from the end of a step-down on, before any tick", () => {
  const h = new Harness();
  h.acquire(50);
  h.handle({ type: "drain", reason: "stepdown", forMs: 1_000 });
  h.recorded(3);
  h.answer(h.take("delete_entry"), ok(51));
  const early = h.guard();
  expect(h.refused.get(early)?.kind).toBe("draining");
  h.nowMs += 1_000;
  h.guard();
  expect(h.refused.size).toBe(1);
  expect(h.requests).toMatchObject([{ type: "put_entry" }]);
});

test("handle() does not end a shutdown by a step-down", () => {
  const h = new Harness();
  h.acquire(50);
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  h.handle({ type: "drain", reason: "stepdown", forMs: 10 });
  h.nowMs += 1_000;
  const id = h.guard();
  expect(h.refused.get(id)?.kind).toBe("draining");
});

test("handle() owes a grace to a program without headers that it met when it released", () => {
  const h = new Harness();
  h.acquire(50);
  h.handle({ type: "drain", reason: "stepdown", forMs: 10 });
  h.recorded(3);
  h.answer(h.take("delete_entry"), CONFLICT);
  h.read(ok(entryOf("older", null, 60)));
  expect(h.effects).toContainEqual({ type: "remember_stranger" });
  expect(h.store.lease.stranger).toBe(true);
});

test("handle() releases at once when a client that had the lock let go of its grant", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51, { passLock: true });
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  h.end(id);
  expect(h.take("put_tenure").released).toBe("shutdown");
});

test("handle() reckons with what a client left to the deadline of its own tenure, and no longer", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51, { passLock: true });
  const { deadlineMs } = h;
  h.pass(TTL_MS);
  h.put(ok(70));
  h.end(id, true);
  expect(h.effects).toContainEqual({ type: "grant_ended", id, lingerUntilMs: deadlineMs });
});

test("handle() wakes to release when what a client that is gone left may write no more", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51, { passLock: true });
  const { deadlineMs } = h;
  h.handle({ type: "drain", reason: "shutdown", forMs: Infinity });
  h.end(id, true);
  for (let revision = 52; h.requests[0]?.type !== "put_tenure"; revision++) {
    if (h.requests.length > 0) h.put(ok(revision));
    // As a timer would: at the time that was asked for last.
    const wake = h.effects.findLast(({ type }) => type === "wake") as { atMs: number };
    h.pass(wake.atMs - h.nowMs);
  }
  expect(h.nowMs).toBeWithin(deadlineMs, deadlineMs + 1);
});
