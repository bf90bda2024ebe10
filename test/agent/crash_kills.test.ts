/**
 * Agents and guards killed at random under load, on two nodes: no two grants ever overlap, no store
 * is stuck, nothing is left.
 *
 * ZIT_TEST_KILLS sets how many are killed, ZIT_TEST_SEED repeats a run's choices.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { openConnection } from "../../src/client/mod.ts";
import { faultsOf, KillStorm } from "../support/kill_storm.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const KILLS = Number(process.env.ZIT_TEST_KILLS ?? 40);
const SEED = Number(process.env.ZIT_TEST_SEED ?? Math.floor(Math.random() * 1e9));
const TTL_MS = 3_000;
const STORES = ["one", "two", "three"];

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

test("faultsOf() finds overlapping grants and epochs that go back, and only them", () => {
  expect(faultsOf("a 1 n 0\na 1 n 1\nb 1 n 0\nc 2 m 0\n")).toEqual([]);
  expect(faultsOf("a 1 n 0\nb 1 n 0\na 1 n 1\n")).toHaveLength(1);
  expect(faultsOf("a 2 n 0\nb 1 n 0\n")).toHaveLength(1);
});

test(
  `${KILLS} kills of agents and guards leave no overlap, no stuck store, no lock, no descriptor (seed ${SEED})`,
  async () => {
    using logs = tempDir();
    const fresh = new Map<string, number>();
    await using storm = await KillStorm.begin({
      seed: SEED,
      stores: STORES,
      logs: logs.path,
      start: async (node, more = {}) => {
        const agent = await RealAgent.start({
          node,
          nats: server.url,
          ...more,
          flags: ["--ttl", `${TTL_MS}ms`, "--drain", "5s", "--interest", "4s"],
        });
        // Before anybody asks it for anything.
        if (!fresh.has(node)) fresh.set(node, await idleDescriptors(agent));
        return agent;
      },
    });
    await storm.rage(KILLS);
    await storm.calm();
    const faults = STORES.flatMap((store) =>
      faultsOf(readFileSync(join(logs.path, store), "utf8")).map((fault) => `${store}: ${fault}`)
    );
    const odd = [...faults, ...storm.oddities];
    // The first is the one that tells; the others mostly follow from it.
    if (odd.length > 0) {
      throw new Error(`${odd.length} faults; evidence: ${storm.keepEvidence()}; first:\n${odd[0]}`);
    }
    console.log(
      "deeds",
      Object.fromEntries(storm.deeds),
      "exits",
      Object.fromEntries(storm.exits),
    );

    let lines = 0;
    for (const store of STORES) {
      lines += readFileSync(join(logs.path, store), "utf8").split("\n").length;
    }
    expect(lines).toBeGreaterThan(KILLS * 10); // it was under load

    // What killed guards left has ended by its deadline, and with it the watchdogs.
    await until("nothing is left of killed guards", () => storm.orphans().length === 0);
    for (const store of STORES) {
      for (const agent of storm.agents.values()) {
        const { status, stderr } = await runClient(agent, [
          "guard",
          store,
          "--wait-lease",
          "--wait",
          "20s",
          "--",
          "true",
        ]);
        expect([status, stderr]).toEqual([0, ""]);
        const released = await (await agent.client()).call("stepdown", { store, for_ms: 1 });
        expect(released.remaining).toBe(0);
        const lock = join(agent.locks, store, "lease.lock");
        expect(Bun.spawnSync(["flock", "-n", lock, "true"]).exitCode).toBe(0);
      }
    }
    for (const [node, agent] of storm.agents) {
      const { counts } = await (await agent.client()).call("status", {});
      expect({ ...counts, connections: 0 }).toMatchObject({ grants: 0, waiters: 0 });
      await until(
        `${node} has as few descriptors as at the start`,
        async () => (await idleDescriptors(agent)) <= fresh.get(node)!,
      );
    }
  },
  60_000 + KILLS * 1_500,
);

/** How many descriptors an agent has open, those of connections left out. */
async function idleDescriptors(agent: RealAgent): Promise<number> {
  await using client = await openConnection({ socket: agent.socket });
  const { counts } = await client.call("status", {});
  return readdirSync(`/proc/${agent.pid}/fd`).length - counts.connections;
}
