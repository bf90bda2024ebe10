/** Who owes a grace for buckets that were lost with all records, by what was known of them when. */
import { expect, test } from "bun:test";
import type { Agent } from "../../src/agent/agent.ts";
import type { Client, LeaseInfo } from "../../src/agent/types.ts";
import { StandaloneCoordinator } from "../../src/standalone/coordinator.ts";
import { FakeTime } from "../support/fake_time.ts";
import { plainAgent } from "../support/plain_agent.ts";

const TTL_MS = 10_000;

/** All that has been answered was handled. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A coordinator whose records are answered when the test says so. */
class SlowRecords extends StandaloneCoordinator {
  held: (() => void)[] | null = null;

  override readTenure(...[store, done]: Parameters<StandaloneCoordinator["readTenure"]>): void {
    super.readTenure(store, (outcome) => {
      if (this.held === null) done(outcome);
      else this.held.push(() => done(outcome));
    });
  }

  hold(): void {
    this.held = [];
  }

  release(): void {
    const held = this.held ?? [];
    this.held = null;
    for (const answer of held) answer();
  }
}

class Fixture {
  readonly time = new FakeTime();
  readonly coordinator = new SlowRecords({
    node: "n",
    incarnation: "i",
    address: null,
    epochOnDisk: () => 0,
  });
  readonly agent: Agent = plainAgent(this.time, {
    ttlMs: TTL_MS,
    ports: { coordinator: this.coordinator },
  });
  readonly #held = new Set<string>();
  readonly #client: Client = {
    id: 1,
    pid: 1,
    congested: false,
    onDrain() {},
    lost() {},
    deadline() {},
    changed: (_, { store, held }: LeaseInfo) => void (held && this.#held.add(store)),
  };

  /** Has the store acquired; its create is answered when this returns. */
  async acquire(store: string): Promise<void> {
    this.agent.watching.watch(this.#client, [store], { ok: () => {}, fail: () => {} });
    await settled();
  }

  /** After how long the store may be written, counted from now; in milliseconds. */
  async heldAfterMs(store: string): Promise<number> {
    await settled();
    const startMs = this.time.bootMs();
    while (!this.#held.has(store) && this.time.step()) await settled();
    return this.time.bootMs() - startMs;
  }

  /** Lets so much time pass. */
  async pass(ms: number): Promise<void> {
    let over = false;
    this.time.after(ms, () => (over = true));
    while (!over && this.time.step()) await settled();
  }
}

test("a store without a record waits for the look at unseen buckets, and owes nothing where they are known", async () => {
  const fixture = new Fixture();
  fixture.agent.onBuckets("unseen");
  await fixture.acquire("one");
  await fixture.pass(1_000);
  fixture.agent.onBuckets("known");
  await fixture.acquire("two");
  expect(await fixture.heldAfterMs("two")).toBe(0);
  expect(await fixture.heldAfterMs("one")).toBeLessThanOrEqual(100);
});

test("a store without a record owes a grace where the look is long in coming, and keeps it once they are known", async () => {
  const fixture = new Fixture();
  fixture.agent.onBuckets("unseen");
  await fixture.acquire("one");
  await fixture.pass(2_000);
  fixture.agent.onBuckets("known");
  expect(await fixture.heldAfterMs("one")).toBe(TTL_MS - 2_000);
});

test("a store without a record that waits for the look owes a grace where the buckets are others", async () => {
  const fixture = new Fixture();
  fixture.agent.onBuckets("unseen");
  await fixture.acquire("one");
  await fixture.pass(1_000);
  fixture.agent.onBuckets("others");
  expect(await fixture.heldAfterMs("one")).toBe(TTL_MS - 1_000);
});

test("a store without a record owes a grace for two TTLs after the buckets were seen to be others", async () => {
  const fixture = new Fixture();
  fixture.agent.onBuckets("others");
  fixture.agent.onBuckets("known"); // the next look
  await fixture.pass(2 * TTL_MS - 1);
  await fixture.acquire("one");
  expect(await fixture.heldAfterMs("one")).toBeGreaterThanOrEqual(TTL_MS);
  await fixture.acquire("two");
  expect(await fixture.heldAfterMs("two")).toBe(0);
});

test.each<["known" | "others", number]>([["known", 0], ["others", TTL_MS]])(
  "a store created while the buckets were unseen goes by what they are by the time its record is read: %s",
  async (seen, graceMs) => {
    const fixture = new Fixture();
    fixture.agent.onBuckets("unseen");
    fixture.coordinator.hold();
    await fixture.acquire("one");
    expect(fixture.coordinator.held).toHaveLength(1);
    fixture.agent.onBuckets(seen);
    fixture.coordinator.release();
    expect(await fixture.heldAfterMs("one")).toBe(graceMs);
  },
);

test("a store that was created before its connection was lost owes a grace by the next one's unseen buckets", async () => {
  const fixture = new Fixture();
  fixture.coordinator.hold();
  await fixture.acquire("one");
  fixture.agent.setConnected(false);
  fixture.agent.onBuckets("unseen");
  fixture.agent.setConnected(true);
  fixture.coordinator.release();
  expect(await fixture.heldAfterMs("one")).toBe(TTL_MS);
});

test("a store whose record tells that nobody holds it owes nothing, whatever is known of the buckets", async () => {
  const fixture = new Fixture();
  const at = "2026-01-01T00:00:00Z";
  const record = {
    node: "other",
    incarnation: "o",
    address: null,
    epoch: 0,
    acquired_at: at,
    released_at: at,
    reason: "released",
  };
  await new Promise((done) => fixture.coordinator.putTenure("one", 0, record, done));
  fixture.agent.onBuckets("unseen");
  await fixture.acquire("one");
  expect(await fixture.heldAfterMs("one")).toBe(0);
});
