import { expect, test } from "bun:test";
import { CONFLICT, entryOf, Harness, ME, ok, tenureOf, TTL_MS, UNKNOWN } from "./harness.ts";

test("handle() refuses a guard whose lease ran out while it waited for the lock (etcd#11456, #9921)", () => {
  const h = new Harness();
  h.onDisk = undefined;
  h.acquire(50);
  const id = h.guard({ waitMs: 60_000 });
  h.nowMs += TTL_MS;
  // The lock comes at last: the first that the store hears of anything.
  h.handle({ type: "locked", lockId: 1, onDisk: null });
  expect(h.granted).toEqual([]);
  expect(h.refused.get(id)?.kind).toBe("unavailable");
});

test("handle() proves a hold anew for a guard that waited for its turn (etcd#11456)", () => {
  const h = new Harness();
  h.acquire(50);
  const first = h.grant(51);
  const second = h.guard({ waitMs: 5_000 });
  expect(h.requests).toEqual([]);
  h.nowMs += 1_000;
  h.end(first);
  // Somebody took the store meanwhile: the write that the grant waits for finds it out.
  h.put(CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  h.tenure(tenureOf("i-beta", 60));
  expect(h.refused.get(second)).toMatchObject({ kind: "not_holder", holder: { node: "beta" } });
});

test("handle() refuses to verify for a holder paused beyond the TTL (etcd#10811, #11457)", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51);
  h.nowMs += TTL_MS * 3;
  const verify = h.verify(id);
  expect(h.verified).toEqual([]);
  expect(h.verifyFailed.get(verify)?.kind).toBe("lost");
});

test("handle() verifies by a write sent after it was asked", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51);
  h.pass(TTL_MS / 3 + 500);
  const verify = h.verify(id);
  // The renewal was on its way before: it proves nothing for the question.
  h.put(ok(52));
  expect(h.verified).toEqual([]);
  h.put(ok(53));
  expect(h.verified).toEqual([verify]);
});

test("handle() ends every wait when the setup contradicts the agent", () => {
  const waits: ((h: Harness) => number)[] = [
    (h) => {
      h.handle({ type: "tick" });
      h.put(CONFLICT);
      h.read(ok(entryOf("beta", "i-beta", 60)));
      h.tenure(tenureOf("i-beta", 60));
      return h.guard({ waitMs: 600_000, waitLease: true });
    },
    (h) => {
      h.acquire(50, tenureOf("i-beta", 40));
      return h.guard({ waitMs: 600_000 }); // for the grace
    },
    (h) => {
      h.acquire(50);
      h.grant(51);
      return h.guard({ waitMs: 600_000, waitLease: true }); // for its turn
    },
    (h) => {
      h.onDisk = undefined;
      h.acquire(50);
      return h.guard({ waitMs: 600_000, waitLease: true }); // for the lock
    },
    (h) => {
      h.acquire(50);
      return h.guard(); // for its proof
    },
  ];
  for (const wait of waits) {
    const h = new Harness();
    const id = wait(h);
    expect(h.refused.has(id)).toBe(false);
    h.handle({ type: "misconfigured", reason: "the bucket has another TTL" });
    expect(h.refused.get(id)).toMatchObject({
      kind: "misconfigured",
      message: expect.stringContaining("another TTL"),
    });
    expect(h.store.waiting).toBe(0);
  }
});

test("handle() speaks of the write that runs, not of a guard, when it cannot verify", () => {
  const ways: ((h: Harness) => void)[] = [
    (h) => h.handle({ type: "disconnected" }),
    (h) => h.pass(2_000), // no answer in time
  ];
  for (const fail of ways) {
    const h = new Harness();
    h.acquire(50);
    const verify = h.verify(h.grant(51));
    fail(h);
    expect(h.verifyFailed.get(verify)).toMatchObject({
      kind: "unavailable",
      message: expect.stringMatching(/^Cannot verify the write to store \S+: the coordinator /),
    });
  }
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51);
  h.connected = false;
  expect(h.verifyFailed.get(h.verify(id))?.message).toStartWith("Cannot verify the write to store");
});

test("handle() never revives a token, not even when the same node gets the store again (consul#4902)", () => {
  const h = new Harness();
  h.acquire(50);
  const old = h.grant(51, { follow: true });
  h.pass(TTL_MS);
  expect(h.lost.has(old)).toBe(true);
  h.put(ok(70));
  h.tenure({ ...tenureOf(ME, 50), node: "alpha" });
  h.recorded();
  h.effects.length = 0;
  const next = h.grant(71, { shared: false });
  expect(h.granted.at(-1)).toMatchObject({ id: next, epoch: 70 });
  const verify = h.verify(old);
  expect(h.verifyFailed.get(verify)?.kind).toBe("lost");
  expect(h.effects).not.toContainEqual(expect.objectContaining({ type: "renewed", id: old }));
});

test("handle() refuses as stale_epoch when tenures know a newer epoch, and a write shows that it is ours (nats-server#7564, #7567)", () => {
  const h = new Harness();
  const id = h.guard();
  h.put(ok(5));
  h.tenure(tenureOf("i-beta", 900));
  // What was read does not decide: another may have taken the store in between.
  expect(h.refused.size).toBe(0);
  h.put(ok(6));
  expect(h.refused.get(id)?.kind).toBe("stale_epoch");
  expect(h.notes).toContainEqual({ type: "stale", epoch: 5, recorded: 900 });
  const late = h.guard();
  h.answer(h.take("delete_entry"), ok(7));
  expect(h.refused.get(late)?.kind).toBe("stale_epoch");
  expect(h.granted).toEqual([]);
});

test("handle() takes a newer epoch on record for what it is when another took the store meanwhile", () => {
  const h = new Harness();
  const id = h.guard();
  h.put(ok(50));
  h.tenure(tenureOf("i-beta", 60));
  h.put(CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  h.tenure(tenureOf("i-beta", 60));
  expect(h.refused.get(id)).toMatchObject({ kind: "not_holder", holder: { node: "beta" } });
  expect(h.notes.some(({ type }) => type === "stale")).toBe(false);
});

test("handle() takes it for what it is, too, when a create of its own landed late behind the other", () => {
  const h = new Harness();
  h.guard();
  h.put(ok(50));
  // The last record is long in coming; meanwhile the entry goes, another has the store, and goes.
  const slow = h.take("read_tenure");
  h.pass(8_000);
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", ME, 61)));
  // A tenure of its own, after the other's.
  h.put(CONFLICT);
  h.read(ok(entryOf("alpha", ME, 61)));
  h.put(ok(62));
  const read = ok({ revision: 1, record: tenureOf("i-beta", 60) });
  h.answer(slow, read);
  h.answer(h.take("read_tenure"), read);
  h.recorded();
  expect(h.notes.filter(({ type }) => type === "stale")).toEqual([]);
  // The other may write still.
  expect(h.refused.get(h.guard())?.kind).toBe("grace");
});

test("handle() refuses as stale_epoch when the disk has seen a newer epoch (nats-server#7564)", () => {
  const h = new Harness();
  h.onDisk = 900;
  h.acquire(50);
  const id = h.guard();
  expect(h.refused.get(id)?.kind).toBe("stale_epoch");
  expect(h.held).toBe(false);
  // Nobody knows whether the newer epoch is written under still: whoever comes next owes the grace.
  expect(h.take("delete_entry").expect).toBe(50);
  expect(h.requests).toEqual([]);
});

test("handle() tells a guard with a shorter wait than the lock's others busy in its own time", () => {
  const h = new Harness();
  h.onDisk = undefined;
  h.acquire(50);
  h.guard({ shared: true, waitMs: 60_000 });
  const hasty = h.guard({ shared: true, waitMs: 100 });
  h.pass(50);
  expect(h.refused.size).toBe(0);
  h.pass(60);
  expect(h.refused.get(hasty)?.kind).toBe("busy");
  expect(h.store.waiting).toBe(1);
});

test("handle() lets the first in the queue in when its turn is free, even if woken after its wait", () => {
  const h = new Harness();
  h.acquire(50, tenureOf("i-beta", 40));
  const id = h.guard({ waitMs: TTL_MS + 1 });
  // The grace ends just before the wait does; the timer is late for both. Renewed meanwhile.
  for (const revision of [51, 52, 53]) {
    h.pass(TTL_MS / 3 - 100);
    if (h.requests.length > 0) h.put(ok(revision));
  }
  h.pass(400);
  expect(h.refused.size).toBe(0);
  h.put(ok(54));
  if (h.granted.length === 0) h.put(ok(55));
  expect(h.granted).toMatchObject([{ id }]);
});

test("handle() tells a guard that waited for the lease unavailable, not busy, when the connection is down", () => {
  const h = new Harness();
  h.acquire(50);
  h.connected = false;
  h.handle({ type: "disconnected" });
  const id = h.guard({ waitMs: 1_000, waitLease: true });
  expect(h.refused.size).toBe(0);
  h.pass(1_001);
  expect(h.refused.get(id)?.kind).toBe("unavailable");
});

test("handle() refuses at once when the connection is down, whoever has the turn and whatever the wait", () => {
  const h = new Harness();
  h.acquire(50);
  h.grant(51);
  h.connected = false;
  h.handle({ type: "disconnected" });
  const ids = [
    h.guard(),
    h.guard({ waitMs: 60_000 }),
    h.guard({ waitMs: 60_000, shared: true }),
  ];
  expect(ids.map((id) => h.refused.get(id)?.kind)).toEqual(ids.map(() => "unavailable"));
  const patient = h.guard({ waitMs: 60_000, waitLease: true });
  expect([h.refused.get(patient), h.store.waiting]).toEqual([undefined, 1]);
});

/** Waits for something else than the coordinator: the turn, the lock, the grace. */
const WAITS: [string, (h: Harness) => number][] = [
  ["its turn", (h) => {
    h.acquire(50);
    h.grant(51);
    h.pass(1_000);
    return h.guard({ waitMs: 60_000 });
  }],
  ["the lock", (h) => {
    h.onDisk = undefined;
    h.acquire(50);
    h.pass(1_000);
    return h.guard({ waitMs: 60_000 });
  }],
  ["the grace", (h) => {
    h.acquire(50, tenureOf("i-beta", 40));
    h.pass(1_000);
    return h.guard({ waitMs: 60_000 });
  }],
];

test.each(WAITS)(
  "handle() refuses within 2 s when nothing answers, also a guard that waits for %s",
  (_, wait) => {
    const h = new Harness();
    const id = wait(h);
    const askedMs = h.nowMs;
    h.pass(1_500);
    h.put(UNKNOWN);
    expect(h.refused.get(id)?.kind).toBe("unavailable");
    expect(h.nowMs - askedMs).toBeLessThan(2_000);
  },
);

test.each(WAITS)(
  "handle() proves the hold anew, but not more than needed, while a guard waits for %s",
  (_, wait) => {
    const h = new Harness();
    wait(h);
    let writes = 0;
    for (let ms = 0; ms < 3_000; ms += 50) {
      while (h.requests.length > 0) {
        h.put(ok(60 + writes));
        writes++;
      }
      h.pass(50);
    }
    expect(writes).toBeGreaterThanOrEqual(8);
    expect(writes).toBeLessThanOrEqual(16);
    expect(h.refused.size).toBe(0);
  },
);

test("handle() does not prove the hold for whoever waits for the lease anyhow", () => {
  const h = new Harness();
  h.acquire(50);
  h.grant(51);
  h.pass(1_000);
  h.guard({ waitMs: 60_000, waitLease: true });
  h.pass(1_000);
  expect(h.requests).toEqual([]);
});

test("handle() refuses within 2 s when nothing answers, whatever the wait", () => {
  const h = new Harness();
  const id = h.guard({ waitMs: 60_000 });
  h.pass(1_900);
  expect(h.refused.get(id)?.kind).toBe("unavailable");
});

test("handle() waits for each answer of a slow coordinator, and is told by the last one that does not come", () => {
  const slow = new Harness();
  const id = slow.guard();
  slow.pass(1_000);
  slow.put(ok(50));
  slow.pass(1_000);
  slow.tenure(null);
  slow.pass(1_000);
  slow.recorded();
  slow.pass(1_000);
  // A renewal that came due meanwhile, and the proof.
  for (let revision = 51; slow.requests.length > 0; revision++) slow.put(ok(revision));
  expect(slow.granted).toMatchObject([{ id }]);

  const gone = new Harness();
  const other = gone.guard();
  gone.pass(1_000);
  gone.put(ok(50));
  gone.pass(1_700);
  expect(gone.refused.size).toBe(0);
  gone.pass(100);
  expect(gone.refused.get(other)?.kind).toBe("unavailable");
});

test("handle() gives a proof its own time where a renewal was on its way before the fence", () => {
  const h = new Harness();
  h.onDisk = undefined;
  h.acquire(50);
  const granted = new Harness();
  granted.acquire(50);
  const holder = granted.grant(51);
  for (const each of [h, granted]) {
    each.nowMs = each.ours.dueAtMs;
    if (each === h) h.guard({ waitMs: 60_000 });
    each.pass(1); // the renewal is sent
  }
  h.handle({ type: "locked", lockId: 1, onDisk: null });
  const verify = granted.verify(holder);
  for (const each of [h, granted]) {
    each.pass(1_000);
    each.put(ok(52));
    each.pass(1_000);
    each.put(ok(53));
  }
  expect([...h.refused.values()]).toEqual([]);
  expect(h.granted).toHaveLength(1);
  expect(granted.verifyFailed.size).toBe(0);
  expect(granted.verified).toEqual([verify]);
});

test("handle() does not wait for ever for a coordinator that answers and never lets anybody have it", () => {
  const h = new Harness();
  const id = h.guard();
  const startMs = h.nowMs;
  while (!h.refused.has(id) && h.nowMs - startMs < 60_000) {
    h.pass(500);
    const [request] = h.requests;
    if (request?.type === "put_entry") h.put(CONFLICT);
    else if (request?.type === "read_entry") h.read(ok({ kind: "none" }));
  }
  expect(h.refused.get(id)?.kind).toBe("unavailable");
  expect(h.nowMs - startMs).toBeLessThan(4 * 1_800 + 500);
});

test("handle() asks for a lease again at once for those who wait for it, however busy the agent is", () => {
  for (const hears of [true, false]) {
    const h = new Harness();
    h.guard({ waitMs: 600_000, waitLease: true });
    h.put(CONFLICT);
    h.read(ok(entryOf("beta", "i-beta", 40)));
    h.tenure(tenureOf("i-beta", 40));
    h.hasRoom = false;
    const record = tenureOf("i-beta", 40, true);
    if (hears) h.handle({ type: "lease", event: { type: "tenure", record } });
    else h.pass(TTL_MS);
    h.take("put_entry");
  }
});

test("handle() waits for a lease of another as long as it was told to", () => {
  const h = new Harness();
  const id = h.guard({ waitMs: 2 * TTL_MS, waitLease: true });
  h.put(CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 40)));
  h.tenure(tenureOf("i-beta", 40));
  expect(h.refused.size).toBe(0);
  // No event tells of an entry that ages out: the store wakes by itself (nats-server#6710).
  let tries = 0;
  for (let ms = 0; ms < TTL_MS && tries === 0; ms += 100) {
    h.pass(100);
    if (h.requests.length === 0) continue;
    tries += h.nowMs > 1_000 + 0.9 * TTL_MS ? 1 : 0;
    h.put(tries > 0 ? ok(60) : { kind: "conflict", lastRevision: 40 });
  }
  h.tenure(tenureOf("i-beta", 40, true));
  h.recorded();
  h.put(ok(61));
  expect(h.granted).toMatchObject([{ id, epoch: 60 }]);
});

test("handle() frees turn and lock of a client that is gone (etcd#17470)", () => {
  const h = new Harness();
  h.acquire(50);
  const gone = h.grant(51);
  const next = h.guard({ waitMs: 5_000 });
  h.end(gone, true);
  h.put(ok(52));
  expect(h.effects).toContainEqual({ type: "unlock", lockId: 1 });
  expect(h.granted.at(-1)).toMatchObject({ id: next });
});

test("handle() answers every verify that was under way when its grant ends", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51);
  const verify = h.verify(id);
  h.end(id);
  expect(h.verifyFailed.get(verify)?.kind).toBe("no_token");
  h.put(UNKNOWN);
  expect(h.verifyFailed.size).toBe(1);
});

test("handle() warns no client whose grant is lost that a later lease is running out", () => {
  const h = new Harness();
  h.acquire(50);
  const old = h.grant(51, { follow: true });
  h.pass(TTL_MS);
  h.put(ok(70));
  h.tenure({ ...tenureOf(ME, 50), node: "alpha" });
  h.recorded();
  const next = h.grant(71, { shared: false });
  h.effects.length = 0;
  h.pass(TTL_MS * 0.7);
  expect(h.effects.flatMap((each) => each.type === "expiring" ? each.id : [])).toEqual([next]);
  expect(h.lost.has(old)).toBe(true);
});

test("handle() lets a guard that lost its tenure before its grant go first in the next one", () => {
  const h = new Harness();
  h.acquire(50);
  const first = h.guard({ waitMs: 60_000, waitLease: true });
  h.guard({ waitMs: 60_000, waitLease: true });
  h.put(CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  h.tenure(tenureOf("i-beta", 60));
  h.pass(TTL_MS / 3);
  h.put(ok(70));
  h.tenure(tenureOf("i-beta", 60, true));
  h.recorded();
  h.put(ok(71));
  expect(h.granted).toMatchObject([{ id: first }]);
});

test("handle() gives the coordinator its time from when the lease is in doubt, not from when a guard came", () => {
  const h = new Harness();
  h.acquire(50);
  h.grant(51);
  const waits = h.guard({ waitMs: 60_000 });
  h.pass(3_000);
  h.put(CONFLICT);
  h.pass(100);
  expect(h.refused.size).toBe(0);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  h.tenure(tenureOf("i-beta", 60));
  expect(h.refused.get(waits)).toMatchObject({ kind: "not_holder", holder: { node: "beta" } });
});

test("handle() asks a coordinator that has lost its past no sooner than a TTL after it gave the store up", () => {
  const h = new Harness();
  h.handle({ type: "tick" });
  h.put(ok(50));
  h.tenure(tenureOf("i-beta", 60));
  h.put(ok(51));
  h.answer(h.take("delete_entry"), ok(52));
  expect(h.notes).toContainEqual(expect.objectContaining({ type: "released" }));
  h.pass(TTL_MS - 1);
  expect(h.requests).toEqual([]);
  h.pass(1);
  expect(h.requests).toMatchObject([{ type: "put_entry" }]);
});

test("handle() names the holder that it read though the holder's record could not be read", () => {
  const h = new Harness();
  const id = h.guard();
  h.put(CONFLICT);
  h.read(ok(entryOf("beta", "i-beta", 60)));
  h.answer(h.take("read_tenure"), UNKNOWN);
  expect(h.refused.get(id)).toMatchObject({ kind: "not_holder", holder: { node: "beta" } });
});
