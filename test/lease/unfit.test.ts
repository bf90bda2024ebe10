/** What a host cannot write it does not hold: gates 5 and 6, and what comes after them. */
import { expect, test } from "bun:test";
import type { LockRefusal } from "../../src/lease/store_events.ts";
import { entryOf, Harness, ok, tenureOf, TTL_MS } from "./harness.ts";

const BROKEN: LockRefusal = { kind: "error", message: "Cannot open lock file: a symbolic link" };
const MISSING: LockRefusal = { kind: "unknown_store", path: "/stores/repo/lease.lock" };

/** A store that was held and whose lock file turned out to be of no use; its lease is given back. */
function unfit(failure: typeof BROKEN | typeof MISSING): Harness {
  const h = new Harness();
  h.acquire(50);
  h.lockFailure = failure as Harness["lockFailure"];
  h.guard();
  h.recorded(3);
  h.answer(h.take("delete_entry"), ok(51));
  return h;
}

const NOBODY = ok({ kind: "tombstone", revision: 51 } as const);

test.each(
  [
    ["misconfigured", BROKEN],
    ["unknown_store", MISSING],
  ] as const,
)("handle() lets the lease go cleanly when a guard is refused as %s", (kind, failure) => {
  const h = new Harness();
  h.acquire(50);
  h.lockFailure = failure as Harness["lockFailure"];
  expect(h.refused.get(h.guard())?.kind).toBe(kind);
  expect(h.held).toBe(false);
  expect(h.take("put_tenure").released).toBe("unusable");
});

test("handle() lets it go, too, when it was given at start or is watched", () => {
  for (const want of ["pinned", "watched"]) {
    const h = new Harness();
    if (want === "pinned") h.store.pinned = true;
    else h.store.watchers = 1;
    h.acquire(50);
    h.lockFailure = MISSING as Harness["lockFailure"];
    h.guard();
    expect([want, h.take("put_tenure").released]).toEqual([want, "unusable"]);
  }
});

test("handle() keeps a lease whose fence cannot be written only until the grants of others end", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51, { shared: true });
  h.fenceError = "the disk is full";
  const refused = h.guard({ shared: true });
  expect(h.refused.get(refused)?.kind).toBe("misconfigured");
  expect(h.held).toBe(false);
  expect(h.requests).toEqual([]);
  expect(h.lost.size).toBe(0);
  h.end(id);
  expect(h.take("put_tenure").released).toBe("unusable");
});

test("handle() never acquires what cannot be written, however often it is asked: it looks who has it", () => {
  const h = unfit(BROKEN);
  for (let asked = 0; asked < 100; asked++) {
    h.read(NOBODY); // the first one comes by itself, at once
    const id = h.guard();
    expect(h.refused.get(id)).toBeUndefined();
    h.read(NOBODY);
    expect(h.refused.get(id)?.kind).toBe("misconfigured");
    h.pass(TTL_MS / 3);
  }
  expect(h.requests.map(({ type }) => type)).toEqual(["read_entry"]);
});

test("handle() names the holder of what cannot be written here, so that the write can go there", () => {
  const h = unfit(BROKEN);
  h.read(NOBODY);
  const id = h.guard();
  h.read(ok(entryOf("beta", "i-beta", 60)));
  h.tenure(tenureOf("i-beta", 60));
  expect(h.refused.get(id)).toMatchObject({ kind: "not_holder", holder: { node: "beta" } });
  expect(h.store.view(h.nowMs, h.context).state).toBe("other");
  // It goes away: still nothing is taken.
  h.pass(TTL_MS / 3);
  h.read(NOBODY);
  expect(h.requests).toEqual([]);
});

test.each([
  ["nothing", null],
  ["the epoch of another that held it since", 55],
])("handle() grants the first guard after the lock file was mended, which says %s", (_, onDisk) => {
  const h = unfit(BROKEN);
  h.read(NOBODY);
  h.lockFailure = null;
  h.onDisk = onDisk;
  const id = h.guard();
  h.read(NOBODY);
  h.put(ok(60));
  h.tenure(null);
  h.recorded(4);
  h.put(ok(61));
  expect(h.granted.map((grant) => grant.id)).toEqual([id]);
  expect(h.held).toBe(true);
  expect(h.notes.flatMap((note) => note.type === "unfit" ? [note.why] : []))
    .toEqual(["lock_file", null]);
});

test("handle() holds again by itself what was mended, without a guard", () => {
  const h = unfit(BROKEN);
  h.read(NOBODY);
  h.lockFailure = null;
  h.pass(TTL_MS / 3);
  h.read(NOBODY);
  h.put(ok(60));
  h.tenure(null);
  h.recorded(4);
  expect(h.held).toBe(true);
});

test("handle() asks for a stale store's lease again a moment later, and holds it only above the disk's epoch", () => {
  const h = new Harness();
  h.onDisk = 900;
  h.acquire(50);
  h.guard();
  h.answer(h.take("delete_entry"), ok(51));
  const early = h.guard();
  h.read(NOBODY);
  expect(h.refused.get(early)?.kind).toBe("stale_epoch");
  for (const epoch of [60, 1_000]) {
    h.pass(TTL_MS);
    h.read(NOBODY);
    h.put(ok(epoch));
    h.tenure(null);
    h.recorded(4);
    expect([epoch, h.held]).toEqual([epoch, epoch > 900]);
    if (epoch < 900) h.answer(h.take("delete_entry"), ok(epoch + 1));
  }
});

test("handle() does not close the record of a stale tenure, even if it is stepped down from then", () => {
  const h = new Harness();
  h.acquire(50);
  const id = h.grant(51, { shared: true });
  h.onDisk = 900;
  // Another tenure's lock: the shared one is joined, an exclusive guard waits for its turn.
  h.store.handle({ type: "lock_checked", lockId: 1, current: false }, h.nowMs, h.context);
  h.guard({ shared: true });
  h.handle({ type: "drain", reason: "stepdown", forMs: 60_000 });
  h.end(id);
  expect(h.requests.map(({ type }) => type)).toEqual(["delete_entry"]);
});

test("handle() forgets what nobody asks for any more, mended or not", () => {
  const h = unfit(MISSING);
  expect(h.store.forgettable(h.nowMs, h.context)).toBe(false);
  h.pass(2_000);
  expect(h.requests).toEqual([]);
  expect(h.store.forgettable(h.nowMs, h.context)).toBe(true);
});
