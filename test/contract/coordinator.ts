/**
 * The contract of a coordinator, as one suite for every implementation: the real one on one server
 * and on a cluster, simulated ones, and the one that stands in where there is none.
 * @module
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import type { TenureRecord } from "../../src/lease/tenure.ts";
import type { Coordinator, EntryRead, Outcome, TenureRead } from "../../src/ports/coordinator.ts";
import { until } from "../support/wait.ts";

/** Whom a coordinator writes for. */
export interface Identity {
  readonly node: string;
  readonly incarnation: string;
  readonly address: string | null;
}

/** What the suite needs of an implementation. */
export interface CoordinatorFixture {
  /** The TTL of entries, in milliseconds. */
  readonly ttlMs: number;
  /** A connected coordinator of the one shared lease bucket. */
  open(identity: Identity): Promise<Coordinator>;
  /** Writes an entry as a program does that sends no headers, whatever is there; its revision. */
  putForeign(store: string, value: string): Promise<number>;
  /** Lets so many milliseconds pass. */
  pass(ms: number): Promise<void>;
  /** Lets things happen until the promise is settled: a simulation has to be driven. */
  settle<T>(promise: Promise<T>): Promise<T>;
  /** Takes the coordinator away until `reconnect`; resolves when all that are open know. */
  disconnect(): Promise<void>;
  /** Brings it back; resolves when all that are open are connected. */
  reconnect(): Promise<void>;
  stop(): Promise<void>;
}

const ALPHA: Identity = { node: "alpha", incarnation: "a1", address: "http://alpha:8080" };
const BETA: Identity = { node: "beta", incarnation: "b1", address: null };

/** How long a started test may take, expiry and elections included, in milliseconds. */
const TEST_MS = 60_000;

/** How many stores are asked at once to show that they share nothing but the connection. */
const MANY = 200;

/**
 * Runs the suite.
 *
 * @param options `small`: only what replication could change; `records`: only the tenures' records,
 * for one that nobody else writes to
 */
export function describeCoordinator(
  name: string,
  makeFixture: () => Promise<CoordinatorFixture>,
  options: { readonly small?: boolean; readonly records?: boolean } = {},
): void {
  describe(`Coordinator (${name})`, () => {
    let fixture: CoordinatorFixture;
    let alpha: Client;
    let beta: Client;
    let stores = 0;

    beforeAll(async () => {
      fixture = await makeFixture();
      alpha = new Client(fixture, await fixture.open(ALPHA));
      beta = new Client(fixture, await fixture.open(BETA));
    }, TEST_MS);
    // An election would be told by all the tests, and so would a cluster whose servers have not yet heard from
    // each other who takes the writes of a new bucket.
    beforeEach(async () => {
      for (const client of [alpha, beta]) {
        await until(
          "a write is answered",
          async () => (await client.put("answered", 0)).kind !== "unknown",
        );
      }
    }, TEST_MS);
    afterAll(async () => await fixture?.stop());

    /** A store that no other test uses. */
    const store = () => `store-${++stores}`;
    const suite: Suite = {
      fixture: () => fixture,
      alpha: () => alpha,
      beta: () => beta,
      store,
    };
    if (options.records) return testTenures(suite);
    testWrites(suite);
    testTime(suite);
    if (options.small) return;
    testReads(suite);
    testTenures(suite);
    testManners(suite);
    testOutage(suite);
  });
}

interface Suite {
  fixture(): CoordinatorFixture;
  alpha(): Client;
  beta(): Client;
  store(): string;
}

function testWrites(suite: Suite): void {
  const { alpha, beta, store } = suite;

  test("putEntry() creates when the key has no message", async () => {
    const revision = value(await alpha().put(store(), 0));
    expect(revision).toBeGreaterThan(0);
  }, TEST_MS);

  test("putEntry() with 0 conflicts when somebody holds the store", async () => {
    const code = store();
    const revision = value(await alpha().put(code, 0));
    const outcome = await beta().put(code, 0);
    expect(outcome.kind).toBe("conflict");
    // Not every answer carries the number; one that does must carry the right one.
    if (outcome.kind === "conflict") expect(outcome.lastRevision ?? revision).toBe(revision);
  }, TEST_MS);

  test("putEntry() lets exactly one of many racing creates through", async () => {
    const code = store();
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, i) => (i % 2 ? alpha() : beta()).put(code, 0)),
    );
    expect(outcomes.filter((outcome) => outcome.kind === "ok")).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome.kind === "conflict")).toHaveLength(19);
  }, TEST_MS);

  test("putEntry() renews at the newest revision and conflicts at an older one", async () => {
    const code = store();
    const first = value(await alpha().put(code, 0));
    const second = value(await alpha().put(code, first));
    expect(second).toBeGreaterThan(first);
    expect((await alpha().put(code, first)).kind).toBe("conflict");
    expect((await beta().put(code, first)).kind).toBe("conflict");
    expect((await alpha().put(code, second)).kind).toBe("ok");
  }, TEST_MS);

  test("deleteEntry() leaves an entry alone when its revision is not the newest", async () => {
    const code = store();
    const first = value(await alpha().put(code, 0));
    const second = value(await alpha().put(code, first));
    expect((await beta().delete(code, first)).kind).toBe("conflict");
    expect(value(await alpha().read(code))).toMatchObject({ kind: "entry", revision: second });
  }, TEST_MS);

  test("putEntry() takes a deleted store at its tombstone, and only there", async () => {
    const code = store();
    const held = value(await alpha().put(code, 0));
    const tombstone = value(await alpha().delete(code, held));
    expect(tombstone).toBeGreaterThan(held);
    expect((await beta().put(code, 0)).kind).toBe("conflict");
    expect((await beta().put(code, held)).kind).toBe("conflict");
    expect(value(await beta().put(code, tombstone))).toBeGreaterThan(tombstone);
  }, TEST_MS);

  test("revisions grow over deletes and creates, whoever writes", async () => {
    const code = store();
    let last = value(await alpha().put(code, 0));
    for (let round = 0; round < 5; round++) {
      const tombstone = value(await alpha().delete(code, last));
      const next = value(await (round % 2 ? alpha() : beta()).put(code, tombstone));
      expect([last < tombstone, tombstone < next]).toEqual([true, true]);
      last = next;
    }
  }, TEST_MS);

  test("calls for many stores are in flight together, and each gets its own answer", async () => {
    const codes = Array.from({ length: MANY }, store);
    const created = await Promise.all(codes.map((code) => alpha().put(code, 0)));
    const revisions = created.map(value);
    expect(new Set(revisions).size).toBe(MANY);
    const reads = await Promise.all(codes.map((code) => beta().read(code)));
    expect(reads.map((read) => value(read)))
      .toEqual(revisions.map((revision) => ({ kind: "entry", revision, ...ALPHA })));
  }, TEST_MS);
}

function testTime(suite: Suite): void {
  const { fixture, alpha, beta, store } = suite;

  test(
    "putEntry() with 0 passes once an entry outlived its TTL, with no event (nats-server#6710)",
    async () => {
      const code = store();
      value(await alpha().put(code, 0));
      const first = await beta().put(code, 0);
      expect(first.kind).toBe("conflict");
      // Nothing is told when it expires: whoever waits tries again, woken by a timer.
      await eventually(suite, async () => (await beta().put(code, 0)).kind === "ok");
      expect(value(await alpha().read(code))).toMatchObject({ kind: "entry", node: "beta" });
    },
    TEST_MS,
  );

  test(
    "putEntry() keeps an entry alive beyond its TTL, and it expires after the last renewal (nats.go#1994)",
    async () => {
      const code = store();
      const { ttlMs, pass } = fixture();
      let revision = value(await alpha().put(code, 0));
      for (let passedMs = 0; passedMs < 2 * ttlMs; passedMs += ttlMs / 4) {
        await pass(ttlMs / 4);
        revision = value(await alpha().put(code, revision));
      }
      expect((await beta().put(code, 0)).kind).toBe("conflict");
      await eventually(suite, async () => (await beta().put(code, 0)).kind === "ok");
    },
    TEST_MS,
  );

  test(
    "readEntry() finds nothing when a tombstone outlived its TTL, and a create expects 0",
    async () => {
      const code = store();
      const revision = value(await alpha().put(code, 0));
      value(await alpha().delete(code, revision));
      await eventually(suite, async () => value(await alpha().read(code)).kind === "none");
      expect((await beta().put(code, 0)).kind).toBe("ok");
    },
    TEST_MS,
  );
}

function testReads(suite: Suite): void {
  const { fixture, alpha, beta, store } = suite;

  test("readEntry() tells none, entry and tombstone apart", async () => {
    const code = store();
    expect(value(await beta().read(code))).toEqual({ kind: "none" });
    const revision = value(await alpha().put(code, 0));
    expect(value(await beta().read(code))).toEqual({ kind: "entry", revision, ...ALPHA });
    const tombstone = value(await alpha().delete(code, revision));
    expect(value(await beta().read(code))).toEqual({ kind: "tombstone", revision: tombstone });
  }, TEST_MS);

  test("readEntry() has no address when the holder gave none", async () => {
    const code = store();
    const revision = value(await beta().put(code, 0));
    expect(value(await alpha().read(code))).toEqual({ kind: "entry", revision, ...BETA });
  }, TEST_MS);

  test(
    "readEntry() has neither incarnation nor address when another program wrote the entry",
    async () => {
      const code = store();
      const revision = await fixture().putForeign(code, "older");
      const read = value(await alpha().read(code));
      expect(read)
        .toEqual({ kind: "entry", revision, node: "older", incarnation: null, address: null });
      expect((await alpha().put(code, 0)).kind).toBe("conflict");
    },
    TEST_MS,
  );

  test("store codes with dots and slashes are keys of their own", async () => {
    const base = store();
    const codes = [base, `${base}.x`, `${base}/x`, `${base}.x/y`, `${base}/x.y`];
    const revisions = [];
    for (const code of codes) revisions.push(value(await alpha().put(code, 0)));
    const reads = [];
    for (const code of codes) reads.push(value(await beta().read(code)));
    expect(reads).toMatchObject(revisions.map((revision) => ({ kind: "entry", revision })));
  }, TEST_MS);
}

function testTenures(suite: Suite): void {
  const { alpha, beta, store } = suite;

  test("readTenure() has revision 0 and no record when there was no tenure", async () => {
    expect(value(await alpha().readTenure(store()))).toEqual({ revision: 0, record: null });
  }, TEST_MS);

  test(
    "putTenure() compares the revision of the record, and readTenure() reads it back",
    async () => {
      const code = store();
      const begun = tenure(100);
      const first = value(await alpha().putTenure(code, 0, begun));
      expect(value(await beta().readTenure(code))).toMatchObject({
        revision: first,
        record: begun,
      });
      expect((await beta().putTenure(code, 0, tenure(101))).kind).toBe("conflict");
      const ended = { ...begun, released_at: "2024-01-02T03:05:00Z", reason: "drain" };
      const second = value(await alpha().putTenure(code, first, ended));
      expect(value(await beta().readTenure(code))).toMatchObject({
        revision: second,
        record: ended,
      });
      expect((await beta().putTenure(code, first, tenure(101))).kind).toBe("conflict");
    },
    TEST_MS,
  );

  test("a tenure's record outlives the TTL of entries", async () => {
    const code = store();
    const revision = value(await alpha().putTenure(code, 0, tenure(7)));
    await suite.fixture().pass(suite.fixture().ttlMs * 1.5);
    expect(value(await beta().readTenure(code)).revision).toBe(revision);
  }, TEST_MS);

  test("readHistory() has each tenure once as it ended, newest first", async () => {
    const code = store();
    expect(value(await alpha().history(code))).toEqual([]);
    let revision = 0;
    for (const epoch of [10, 20]) {
      revision = value(await alpha().putTenure(code, revision, tenure(epoch)));
      const ended = { ...tenure(epoch), released_at: "2024-01-02T03:05:00Z" };
      revision = value(await alpha().putTenure(code, revision, ended));
    }
    value(await beta().putTenure(code, revision, tenure(30)));
    const history = value(await beta().history(code));
    expect(history.map(({ epoch, released_at }) => [epoch, released_at !== undefined]))
      .toEqual([[30, false], [20, true], [10, true]]);
  }, TEST_MS);

  test(
    "readHistory() keeps the newest records when there were more than the bucket keeps",
    async () => {
      const code = store();
      let revision = 0;
      for (let epoch = 1; epoch <= 12; epoch++) {
        revision = value(await alpha().putTenure(code, revision, tenure(epoch)));
      }
      const history = value(await beta().history(code));
      expect(history.map(({ epoch }) => epoch)).toEqual([12, 11, 10, 9, 8, 7, 6, 5]);
    },
    TEST_MS,
  );
}

function testManners(suite: Suite): void {
  const { fixture, alpha, store } = suite;

  test("done is called once, and not before the call returned", async () => {
    const { coordinator } = alpha();
    const code = store();
    let calls = 0;
    let returned = false;
    const early: boolean[] = [];
    const first = new Promise<void>((resolve) => {
      coordinator.putEntry(code, 0, () => {
        early.push(!returned);
        calls++;
        resolve();
      });
    });
    returned = true;
    await fixture().settle(first);
    // Another round trip on the same connection: a second call would have come by then.
    value(await alpha().read(code));
    expect({ calls, early }).toEqual({ calls: 1, early: [false] });
  }, TEST_MS);

  test(
    "a call is refused as unknown when the code could name other keys than its own",
    async () => {
      const base = store();
      const revision = value(await alpha().put(`${base}/x`, 0));
      for (const code of [">", "*", `${base}/*`, "a b", "", "../x", "a..b"]) {
        expect((await alpha().put(code, 0)).kind).toBe("unknown");
        expect((await alpha().read(code)).kind).toBe("unknown");
        expect((await alpha().readTenure(code)).kind).toBe("unknown");
        expect((await alpha().history(code)).kind).toBe("unknown");
      }
      expect(value(await alpha().read(`${base}/x`))).toMatchObject({ revision });
    },
    TEST_MS,
  );
}

function testOutage(suite: Suite): void {
  const { fixture, alpha, beta, store } = suite;

  test("a call is unknown when disconnected, and is never delivered later", async () => {
    const code = store();
    await fixture().disconnect();
    expect(alpha().coordinator.connected).toBe(false);
    let returned = false;
    const early: boolean[] = [];
    const outcome = new Promise<Outcome<number>>((resolve) =>
      alpha().coordinator.putEntry(code, 0, (result) => {
        early.push(!returned);
        resolve(result);
      })
    );
    returned = true;
    expect((await fixture().settle(outcome)).kind).toBe("unknown");
    expect(early).toEqual([false]);
    expect((await alpha().putTenure(code, 0, tenure(1))).kind).toBe("unknown");
    expect((await alpha().read(code)).kind).toBe("unknown");
    await fixture().reconnect();
    // What had been kept would have gone out before these, on the same connection.
    expect(value(await alpha().read(code))).toEqual({ kind: "none" });
    expect(value(await alpha().readTenure(code))).toEqual({ revision: 0, record: null });
    expect((await beta().put(code, 0)).kind).toBe("ok");
  }, TEST_MS);
}

/** Tries until it holds, letting time pass; fails well after the TTL. */
async function eventually(suite: Suite, holds: () => Promise<boolean>): Promise<void> {
  const { ttlMs, pass } = suite.fixture();
  const stepMs = ttlMs / 50;
  for (let passedMs = 0; passedMs < 10 * ttlMs; passedMs += stepMs) {
    if (await holds()) return;
    await pass(stepMs);
  }
  throw new Error(`It did not come to hold within ten times the TTL of ${ttlMs} ms`);
}

function tenure(epoch: number): TenureRecord {
  return { ...ALPHA, epoch, acquired_at: "2024-01-02T03:04:05Z" };
}

/** The value of an outcome that must be ok. */
export function value<T>(outcome: Outcome<T>): T {
  if (outcome.kind !== "ok") throw new Error(`Expected ok, got ${JSON.stringify(outcome)}`);
  return outcome.value;
}

/** A coordinator with promises. */
export class Client {
  readonly coordinator: Coordinator;
  readonly #settle: <T>(promise: Promise<T>) => Promise<T>;

  constructor(fixture: Pick<CoordinatorFixture, "settle">, coordinator: Coordinator) {
    this.#settle = (promise) => fixture.settle(promise);
    this.coordinator = coordinator;
  }

  put(store: string, expected: number): Promise<Outcome<number>> {
    return this.#call((done) => this.coordinator.putEntry(store, expected, done));
  }

  delete(store: string, expected: number): Promise<Outcome<number>> {
    return this.#call((done) => this.coordinator.deleteEntry(store, expected, done));
  }

  read(store: string): Promise<Outcome<EntryRead>> {
    return this.#call((done) => this.coordinator.readEntry(store, done));
  }

  readTenure(store: string): Promise<Outcome<TenureRead>> {
    return this.#call((done) => this.coordinator.readTenure(store, done));
  }

  putTenure(
    store: string,
    expected: number,
    record: TenureRecord,
  ): Promise<Outcome<number>> {
    return this.#call((done) => this.coordinator.putTenure(store, expected, record, done));
  }

  history(store: string): Promise<Outcome<TenureRecord[]>> {
    return this.#call((done) => this.coordinator.readHistory(store, done));
  }

  #call<T>(start: (done: (outcome: Outcome<T>) => void) => void): Promise<Outcome<T>> {
    return this.#settle(new Promise((resolve) => start(resolve)));
  }
}
