import { expect, test } from "bun:test";
import { CONFLICT, entryOf, Harness, ME, ok, tenureOf, TTL_MS, UNKNOWN } from "./harness.ts";

test("handle() grants a first start at once, after record, lock, fence and proof", () => {
  const h = new Harness();
  const id = h.guard();
  h.put(ok(50));
  h.tenure(null);
  expect(h.granted).toEqual([]);
  h.recorded();
  // Acknowledged, locked, fenced: only a write sent after all that makes the grant.
  expect(h.granted).toEqual([]);
  expect(h.take("put_entry").expect).toBe(50);
  expect(h.requests).toEqual([]);
  h.answer({ type: "put_entry", seq: h.ours.write!.seq, expect: 50 }, ok(51));
  expect(h.granted).toMatchObject([{ id, epoch: 50, revision: 51 }]);
});

test("handle() counts the deadline from the send, not from the reply (litefs consul.go)", () => {
  const h = new Harness();
  h.acquire(50);
  h.guard();
  const sentMs = h.nowMs;
  h.nowMs += 1_400;
  h.put(ok(51));
  expect(h.granted[0].deadlineMs).toBe(sentMs + TTL_MS * 0.98);
});

test("handle() counts the deadline from a clock read before the send (ShedLock#132)", () => {
  const h = new Harness();
  h.acquire(50);
  const readMs = h.nowMs;
  h.guard();
  const request = h.take("put_entry");
  // The process stood still between its look at the clock and the sending, for as long as it took.
  h.nowMs += 4_000;
  h.answer(request, ok(51));
  expect(h.deadlineMs).toBe(readMs + TTL_MS * 0.98);
});

test("handle() retries a renewal of unknown outcome until the deadline, and goes on (go-choria election)", () => {
  const h = new Harness();
  h.acquire(50);
  h.pass(TTL_MS / 3 + 500);
  h.put(UNKNOWN);
  for (let tries = 0; tries < 3; tries++) {
    h.pass(1_000);
    expect(h.requests).toMatchObject([{ type: "put_entry", expect: 50 }]);
    if (tries < 2) h.put(UNKNOWN);
  }
  // The first one had landed: the retry conflicts, and reading back finds our own write.
  h.put(CONFLICT);
  expect(h.held).toBe(false);
  h.read(ok(entryOf("alpha", ME, 51)));
  expect(h.requests).toMatchObject([{ type: "put_entry", expect: 51 }]);
  h.put(ok(52));
  expect(h.ours.epoch).toBe(50);
  expect(h.held).toBe(true);
  expect(h.notes.some(({ type }) => type === "lost")).toBe(false);
});

test.each([
  ["10071, with the newest revision", { kind: "conflict", lastRevision: 77 } as const],
  ["10164, without", CONFLICT],
])(
  "handle() takes %s for a conflict: it stops granting, reads, and names the new holder (nats.go#2097, nats-server#7281)",
  (_, conflict) => {
    const h = new Harness();
    h.acquire(50);
    const id = h.guard();
    h.put(conflict);
    expect(h.held).toBe(false);
    expect(h.granted).toEqual([]);
    h.read(ok(entryOf("beta", "i-beta", 77)));
    h.tenure(tenureOf("i-beta", 77));
    expect(h.refused.get(id)).toMatchObject({
      kind: "not_holder",
      holder: { node: "beta", epoch: 77 },
    });
    expect(h.store.lease.phase).toBe("foreign");
  },
);

test("handle() neither takes over nor steps down on what was read (nats-server#4710, #4162, #6557)", () => {
  const h = new Harness();
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  // A stale read shows nothing although somebody holds it: that is worth a try, no more.
  h.read(ok({ kind: "none" }));
  expect(h.store.lease.phase).toBe("acquiring");
  expect(h.requests).toMatchObject([{ type: "put_entry", expect: 0 }]);

  const holder = new Harness();
  holder.acquire(50);
  holder.pass(TTL_MS / 3 + 500);
  holder.put(ok(51));
  holder.pass(TTL_MS / 3 + 500);
  holder.put(CONFLICT);
  // A follower that has not seen our newest write: not a reason to go on from there, nor to stop.
  holder.read(ok(entryOf("alpha", ME, 50)));
  expect(holder.store.lease.phase).toBe("ours");
  expect(holder.requests).toEqual([]);
  holder.pass(100);
  expect(holder.requests).toMatchObject([{ type: "read_entry" }]);
});

test("handle() moves the deadline for an acknowledged compare-and-set alone (etcd#15247)", () => {
  const h = new Harness();
  h.acquire(50);
  const before = h.deadlineMs;
  h.pass(TTL_MS / 3 + 500);
  h.put(UNKNOWN);
  h.handle({ type: "connected" });
  h.handle({
    type: "lease",
    event: { type: "tenure", record: tenureOf("i-beta", 40, true) },
  });
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", ME, 51)));
  expect(h.deadlineMs).toBe(before);
  h.put(ok(52));
  expect(h.deadlineMs).toBeGreaterThan(before);
});

test("handle() ends a hold at its deadline whatever hangs (kubernetes#65094)", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51);
  h.pass(TTL_MS / 3 + 500);
  expect(h.requests).toHaveLength(1);
  h.nowMs = h.deadlineMs;
  expect(h.held).toBe(false);
  h.pass(0);
  expect(h.lost.get(id)?.kind).toBe("unavailable");
});

test("handle() tells a lost lease from an unreachable coordinator (dynamodb-lock-client#6)", () => {
  const taken = new Harness();
  taken.acquire(50);
  const one = taken.grant(51);
  taken.pass(TTL_MS / 3 + 500);
  taken.put(CONFLICT);
  taken.read(ok(entryOf("beta", "i-beta", 60)));
  expect(taken.lost.get(one)?.kind).toBe("not_holder");

  const silent = new Harness();
  silent.acquire(50);
  const two = silent.grant(51);
  silent.pass(TTL_MS / 3 + 500);
  silent.put(UNKNOWN);
  silent.pass(TTL_MS);
  expect(silent.lost.get(two)?.kind).toBe("unavailable");
  const third = silent.guard();
  silent.put(UNKNOWN);
  expect(silent.refused.get(third)?.kind).toBe("unavailable");
});

test("handle() ignores an acknowledgement that comes after its own deadline", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51, { follow: true });
  h.pass(TTL_MS / 3 + 500);
  const request = h.take("put_entry");
  h.nowMs += TTL_MS;
  h.answer(request, ok(52));
  expect(h.lost.get(id)?.kind).toBe("unavailable");
  expect(h.effects.filter(({ type }) => type === "renewed")).toEqual([]);
});

test("handle() lives by the bucket's TTL, and by a new one at once (kubernetes#47671)", () => {
  const h = new Harness();
  h.acquire(50);
  h.ttlMs = 6_000;
  h.pass(5_000);
  expect(h.held).toBe(true);
  h.pass(900);
  expect(h.held).toBe(false);
});

test("handle() begins a new tenure with a new epoch on its own dying entry (curator#1121)", () => {
  const h = new Harness();
  h.acquire(50);
  const old = h.grant(51);
  h.pass(TTL_MS);
  // It is tried again at once; our own entry has not aged out yet.
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", ME, 51)));
  expect(h.take("put_entry").expect).toBe(51);
  h.answer({ type: "put_entry", seq: h.store.lease.seq, expect: 51 }, ok(60));
  h.tenure({ ...tenureOf(ME, 50), node: "alpha" });
  h.recorded();
  expect(h.ours.epoch).toBe(60);
  const id = h.verify(old);
  expect(h.verifyFailed.get(id)?.kind).toBe("lost");
});

test("handle() renews again after release and quick acquisition (dynamolock#14)", () => {
  const h = new Harness();
  h.acquire(50);
  h.handle({ type: "drain", reason: "stepdown", forMs: 10 });
  h.recorded(3);
  h.answer(h.take("delete_entry"), ok(51));
  h.nowMs += 20;
  h.guard();
  expect(h.take("put_entry").expect).toBe(51);
  h.answer({ type: "put_entry", seq: h.store.lease.seq, expect: 51 }, ok(52));
  h.tenure({ ...tenureOf(ME, 50, true), node: "alpha" }, 3);
  h.recorded(4);
  h.put(ok(53));
  expect(h.granted).toHaveLength(1);
  for (const revision of [54, 55, 56]) {
    h.pass(TTL_MS / 3 + 300);
    h.put(ok(revision));
  }
  expect(h.ours.epoch).toBe(52);
  expect(h.held).toBe(true);
});

test("handle() counts the pause before it renews again from when it sent, not from when it gave up", () => {
  const h = new Harness();
  h.acquire(50);
  h.pass(TTL_MS / 3 + 500);
  const sent = h.take("put_entry");
  h.pass(1_500);
  h.answer(sent, UNKNOWN);
  expect(h.requests).toMatchObject([{ type: "put_entry", expect: 50 }]);
});

test("handle() writes again over an entry of its own that is as it was, though it was refused there", () => {
  const h = new Harness();
  h.acquire(50);
  h.pass(TTL_MS / 3 + 500);
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", ME, 50)));
  h.put(ok(51));
  expect(h.held).toBe(true);
  expect(h.ours).toMatchObject({ epoch: 50, revision: 51, doubt: null });
});

test("handle() tells a holder that renews from one that follows another", () => {
  const h = new Harness();
  const find = (incarnation: string, revision: number) => {
    h.pass(TTL_MS / 3);
    h.put(CONFLICT);
    h.read(ok(entryOf("alpha", incarnation, revision)));
    h.tenure(null);
    return h.notes.at(-1);
  };
  expect(find("i-other", 60)).toMatchObject({ type: "foreign", renews: false });
  expect(find("i-another", 61)).toMatchObject({ type: "foreign", duplicate: true, renews: false });
  expect(find("i-another", 62)).toMatchObject({ type: "foreign", duplicate: true, renews: true });
});
