import { expect, test } from "bun:test";
import { CONFLICT, entryOf, Harness, ME, ok, tenureOf, TTL_MS, UNKNOWN } from "./harness.ts";

test.each([
  ["nobody", null, "granted"],
  ["a clean release", tenureOf("i-beta", 40, true), "granted"],
  ["our own tenure", { ...tenureOf(ME, 40), node: "alpha" }, "granted"],
  ["a holder that may not know", tenureOf("i-beta", 40), "grace"],
])("handle() after %s: the store is %s", (_, previous, expected) => {
  const h = new Harness();
  const id = h.guard();
  h.put(ok(50));
  h.tenure(previous);
  h.recorded();
  if (expected === "granted") {
    h.put(ok(51));
    expect(h.granted).toMatchObject([{ id }]);
  } else {
    expect(h.refused.get(id)).toMatchObject({ kind: "grace", retryAfterMs: TTL_MS });
    expect(h.held).toBe(false);
    h.pass(TTL_MS / 3 + 500);
    h.put(ok(51));
    h.pass(TTL_MS / 3 + 500);
    h.put(ok(52));
    h.pass(TTL_MS / 3 + 500);
    expect(h.held).toBe(true);
  }
});

test.each([
  ["that went by a longer TTL: as long as that", 4 * TTL_MS, undefined, 4 * TTL_MS],
  ["that went by a shorter TTL: as long as ours", TTL_MS / 4, undefined, TTL_MS],
  ["that does not tell: as long as ours", undefined, undefined, TTL_MS],
  ["that went by a longer TTL, where somebody set the grace: that", 4 * TTL_MS, 5_000, 5_000],
])("handle() owes a grace to a displaced holder %s", (_, ttlMs, graceMs, expected) => {
  const h = new Harness();
  h.graceMs = graceMs;
  h.acquire(50, { ...tenureOf("i-beta", 40), ttlMs });
  expect(h.ours.graceUntilMs - h.ours.acquiredAtMs).toBe(expected);
});

test.each([
  ["a longer TTL than ours", 4 * TTL_MS, undefined, 4 * TTL_MS],
  ["nobody", null, undefined, 0],
  ["a longer TTL than ours, where somebody set the grace", 4 * TTL_MS, 5_000, 0],
])("handle() passes on, beside its record, what it owes to %s", (_, ttlMs, graceMs, owedMs) => {
  const h = new Harness();
  h.graceMs = graceMs;
  h.handle({ type: "tick" });
  h.put(ok(50));
  h.tenure(ttlMs === null ? null : { ...tenureOf("i-beta", 40), ttlMs });
  expect(h.take("put_tenure").owedMs).toBe(owedMs);
});

test("handle() owes nothing to a holder that went by a longer TTL, and released", () => {
  const h = new Harness();
  h.acquire(50, { ...tenureOf("i-beta", 40, true), ttlMs: 4 * TTL_MS });
  expect(h.held).toBe(true);
});

test("handle() keeps a grace that is remembered, though it is longer than our TTL", () => {
  const untilMs = 1_000 + 4 * TTL_MS;
  const h = new Harness({ graceUntilMs: untilMs });
  h.acquire(50, { ...tenureOf("i-beta", 40), ttlMs: TTL_MS });
  expect(h.ours.graceUntilMs).toBe(untilMs);
});

test("handle() waits for the clients of an earlier agent of this host for the TTL that it went by", () => {
  const h = new Harness();
  h.inheritances.set("i-before", { clientsGone: false });
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", "i-before", 40)));
  h.put(ok(41));
  h.tenure({ ...tenureOf("i-before", 40), node: "alpha", ttlMs: 4 * TTL_MS });
  h.recorded();
  expect(h.ours.graceUntilMs - h.ours.acquiredAtMs).toBe(4 * TTL_MS);
});

test.each([
  ["was longer than ours", 4 * TTL_MS, undefined, 4 * TTL_MS],
  ["was shorter than ours", TTL_MS / 4, undefined, TTL_MS],
  ["is not known", undefined, undefined, TTL_MS],
  ["was longer than ours, where somebody set the grace", 4 * TTL_MS, 5_000, 5_000],
])(
  "handle() owes a whole grace again after a reboot within one: by a TTL that %s",
  (_, ttlMs, graceMs, expected) => {
    // Nobody knows how much of it is over, but its own agent's record tells how long it was.
    const h = new Harness({ graceUntilMs: Infinity });
    h.graceMs = graceMs;
    h.inheritances.set("i-before", { clientsGone: true });
    h.handle({ type: "tick" });
    h.put(CONFLICT);
    h.read(ok(entryOf("alpha", "i-before", 40)));
    h.put(ok(41));
    h.tenure({ ...tenureOf("i-before", 40), node: "alpha", ttlMs });
    h.recorded();
    expect(h.ours.graceUntilMs - h.ours.acquiredAtMs).toBe(expected);
  },
);

test("handle() carries a grace over a loss of the store in the midst of it", () => {
  const h = new Harness();
  h.acquire(50, tenureOf("i-beta", 40));
  const { graceUntilMs } = h.ours;
  h.pass(TTL_MS / 3 + 500);
  h.put(CONFLICT);
  h.read(ok({ kind: "none" }));
  h.put(ok(60));
  h.tenure({ ...tenureOf(ME, 50), node: "alpha" });
  h.recorded();
  expect(h.ours.graceUntilMs).toBe(graceUntilMs);
  expect(h.held).toBe(false);
});

test("handle() owes a grace to a program that records no tenures", () => {
  const h = new Harness();
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("older", null, 40)));
  h.tenure(null);
  expect(h.effects).toContainEqual({ type: "remember_stranger" });
  h.pass(TTL_MS);
  h.put(ok(50));
  h.tenure(null);
  h.recorded();
  expect(h.held).toBe(false);
  expect(h.ours.graceUntilMs).toBeGreaterThan(h.nowMs);
});

test("handle() never takes an entry under its own name for its own (kubernetes#58302, #61151)", () => {
  const h = new Harness();
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", "i-twin", 40)));
  h.tenure({ ...tenureOf("i-twin", 40), node: "alpha" });
  expect(h.store.lease.phase).toBe("foreign");
  h.pass(TTL_MS / 3 + 10);
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", "i-twin", 41)));
  h.tenure({ ...tenureOf("i-twin", 40), node: "alpha" });
  // It renews: so it is alive, and the name is used twice.
  expect(h.notes.at(-1)).toEqual({ type: "foreign", duplicate: true, renews: true });
});

test("handle() adopts the entry of a dead agent of this host at once when its clients are gone (client-go#448)", () => {
  const h = new Harness();
  h.inheritances.set("i-dead", { clientsGone: true });
  const id = h.guard();
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", "i-dead", 40)));
  expect(h.take("put_entry").expect).toBe(40);
  h.answer({ type: "put_entry", seq: h.store.lease.seq, expect: 40 }, ok(50));
  h.tenure({ ...tenureOf("i-dead", 30), node: "alpha" });
  h.recorded();
  h.put(ok(51));
  expect(h.granted).toMatchObject([{ id, epoch: 50 }]);
});

test("handle() adopts it with a grace while a client of it may still write (sanlock#1)", () => {
  const h = new Harness();
  h.inheritances.set("i-dead", { clientsGone: false });
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", "i-dead", 40)));
  h.put(ok(50));
  h.tenure({ ...tenureOf("i-dead", 30), node: "alpha" });
  h.recorded();
  expect(h.held).toBe(false);
  expect(h.ours.graceUntilMs).toBe(h.ours.acquiredAtMs + TTL_MS);
});

test("handle() waits for its clients' deadlines though the grace is shorter", () => {
  const h = new Harness();
  h.graceMs = 0;
  h.inheritances.set("i-dead", { clientsGone: false });
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", "i-dead", 40)));
  h.put(ok(41));
  h.tenure({ ...tenureOf("i-dead", 30), node: "alpha" });
  expect(h.store.lease.graceUntilMs).toBe(h.nowMs + h.context.timing.ttlMs);
});

test("handle() owes nothing to clients of an earlier agent of this host that closed its tenure", () => {
  const h = new Harness();
  h.inheritances.set("i-before", { clientsGone: false });
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", ME, 41)));
  h.put(ok(42));
  h.tenure({ ...tenureOf("i-before", 30, true), node: "alpha" });
  h.recorded();
  expect(h.held).toBe(true);
});

test("handle() tries again in a moment where a closed tenure's entry is still there", () => {
  const h = new Harness();
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  h.tenure(tenureOf("i-beta", 60));
  const record = tenureOf("i-beta", 60, true);
  h.handle({ type: "lease", event: { type: "tenure", record } });
  for (const pauseMs of [2, 4, 8]) {
    h.put({ kind: "conflict", lastRevision: 60 });
    h.pass(pauseMs);
    expect(h.requests).toMatchObject([{ type: "put_entry" }]);
  }
});

test("handle() claims an entry anew when a claim on it had no answer", () => {
  const h = new Harness();
  h.graceMs = 0;
  h.inheritances.set("i-dead", { clientsGone: false });
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", "i-dead", 40)));
  h.put(UNKNOWN);
  h.pass(1_000);
  // Not a create at the dead one's revision: that would displace it without being its heir.
  expect(h.requests).toMatchObject([{ type: "put_entry", expect: 0 }]);
});

test.each([[true], [false]])(
  "handle() is the heir though its adoption's acknowledgement was missed; clients gone: %p",
  (clientsGone) => {
    const h = new Harness();
    h.graceMs = 0;
    h.inheritances.set("i-dead", { clientsGone });
    h.handle({ type: "tick" });
    h.put(CONFLICT);
    h.read(ok(entryOf("alpha", "i-dead", 40)));
    h.put(UNKNOWN);
    h.pass(1_000);
    h.put(CONFLICT);
    h.read(ok(entryOf("alpha", ME, 41)));
    h.put(ok(42));
    h.tenure({ ...tenureOf("i-dead", 30), node: "alpha" });
    h.recorded();
    expect(h.held).toBe(clientsGone);
  },
);

test("handle() knows of every store that it is free, ours, or whose it is (litefs#76)", () => {
  const h = new Harness();
  expect(h.store.view(h.nowMs, h.context).state).toBe("free");
  h.handle({ type: "tick" });
  h.put(CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 40)));
  h.tenure(tenureOf("i-beta", 38));
  expect(h.store.view(h.nowMs, h.context)).toMatchObject({
    state: "other",
    holder: { node: "beta", epoch: 38 },
  });
});

test.each([
  ["before the store was taken again", 0],
  ["while its record was read", 1],
  ["while our record was written", 2],
])("handle() owes a grace for the older program's entry of which it heard %s, late", (_, step) => {
  const h = new Harness();
  h.acquire(50);
  h.pass(TTL_MS / 2);
  h.put(CONFLICT);
  // We stood still: the answer comes when the hold is over, and nobody waits for it any more.
  const slow = h.take("read_entry");
  h.pass(TTL_MS);
  const hear = (now: number) => {
    if (now === step) h.answer(slow, ok(entryOf("older", null, 60)));
  };
  hear(0);
  h.put(ok(70));
  hear(1);
  const ours = { ...tenureOf(ME, 50), node: "alpha" };
  h.tenure(ours);
  const writing = h.take("put_tenure");
  hear(2);
  h.answer(writing, ok(2));
  if (step === 2) {
    h.tenure({ ...tenureOf(ME, 70), node: "alpha" });
    h.recorded();
  }
  expect(h.refused.get(h.guard())).toMatchObject({ kind: "grace", retryAfterMs: TTL_MS });
  expect(h.effects).toContainEqual({ type: "remember_stranger" });
});
