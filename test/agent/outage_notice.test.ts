/** What it costs to notice an outage while guards wait for something else than the coordinator. */
import { expect, test } from "bun:test";
import type { Client } from "../../src/agent/types.ts";
import { StandaloneCoordinator } from "../../src/standalone/coordinator.ts";
import { FakeTime } from "../support/fake_time.ts";
import { plainAgent } from "../support/plain_agent.ts";

const STORES = 200;
/** Renewed once in 20 s. */
const TTL_MS = 60_000;

const WHO = { node: "n", incarnation: "i", address: null };

/** All that has been answered was handled. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A coordinator that counts writes of entries, and answers while it is there. */
class Counting extends StandaloneCoordinator {
  writes = 0;
  answers = true;
  delayMs = 0;
  readonly #time: FakeTime;

  constructor(time: FakeTime) {
    super({ ...WHO, epochOnDisk: () => 0 });
    this.#time = time;
  }

  override putEntry(...[store, expect, done]: Parameters<StandaloneCoordinator["putEntry"]>): void {
    this.writes++;
    super.putEntry(store, expect, (outcome) => {
      if (!this.answers) return;
      if (this.delayMs === 0) done(outcome);
      else this.#time.after(this.delayMs, () => done(outcome));
    });
  }
}

/** An agent of which a guard of each store waits for the lock. */
async function waitingAgent() {
  const time = new FakeTime();
  const coordinator = new Counting(time);
  const limits = { maxWaiters: STORES, maxGrants: STORES, maxLocks: STORES };
  const agent = plainAgent(time, { ttlMs: TTL_MS, ...limits, ports: { coordinator } });
  const client = { id: 1, pid: 1, congested: false } as Client;
  const plain = {
    waitMs: 600_000,
    shared: false,
    waitLease: false,
    passLock: false,
    follow: false,
  };
  for (let i = 0; i < STORES; i++) {
    const params = { ...plain, store: `s${i}` };
    agent.guard(client, params, { ok: () => {}, fail: () => {} });
  }
  for (let turns = 0; turns < 20; turns++) await settled();
  const pass = async (ms: number) => {
    let over = false;
    time.after(ms, () => (over = true));
    while (!over && time.step()) await settled();
  };
  return { agent, coordinator, pass };
}

test.each([0, 300, 900])(
  "one write tells for all stores at which guards wait that the coordinator is there, %d ms away",
  async (delayMs) => {
    const { agent, coordinator, pass } = await waitingAgent();
    expect(agent.counts()).toMatchObject({ waiters: STORES });
    coordinator.delayMs = delayMs;
    await pass(6_000);
    coordinator.writes = 0;
    await pass(3_000);
    // Up to fifteen for that, and thirty renewals.
    expect(coordinator.writes).toBeGreaterThan(2);
    expect(coordinator.writes).toBeLessThan(STORES / 2);
    agent.close();
  },
);

test("each of them asks when none is answered any more", async () => {
  const { agent, coordinator, pass } = await waitingAgent();
  coordinator.answers = false;
  coordinator.writes = 0;
  await pass(1_000);
  expect(coordinator.writes).toBe(STORES);
  agent.close();
});
