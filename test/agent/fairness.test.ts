/**
 * A store that everybody wants at once does not starve the others, nor the renewals of very many.
 */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Connection } from "../../src/client/mod.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

/** Several thirds of it are watched: each of the stores is renewed, or lost. */
const TTL_MS = 3_000;
const STORES = 2_000;
const HOT_GUARDS = 64;

/** Guards a store again and again until told to stop; returns how often. */
async function guardOn(
  client: Connection,
  store: string,
  goOn: () => boolean,
): Promise<number> {
  let times = 0;
  for (; goOn(); times++) {
    const { token } = await client.call("guard", { store, wait_ms: 20_000, wait_lease: true });
    await client.call("release", { token });
  }
  return times;
}

test(
  "guard() on a store is granted as often as before while 64 guards want another, and no lease lapses",
  async () => {
    await using server = await NatsServer.start();
    const file = join(server.dir, "stores");
    writeFileSync(file, Array.from({ length: STORES }, (_, i) => `s${i}`).join("\n"));
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--ttl", `${TTL_MS}ms`, "--stores", file, "--log-level", "info"],
    });
    for (const store of ["hot", "other"]) agent.makeStore(store);
    const [hot, other] = [await agent.client(), await agent.client()];
    await until("all are held", async () => {
      return (await hot.call("status", {})).counts.held >= STORES;
    });
    const endMs = performance.now() + 2 * TTL_MS;
    const goOn = () => performance.now() < endMs;
    const others = guardOn(other, "other", goOn);
    const crowd = await Promise.all(
      Array.from({ length: HOT_GUARDS }, () => guardOn(hot, "hot", goOn)),
    );
    const total = crowd.reduce((sum, times) => sum + times, 0);
    // Each of the crowd has its turn, first come, first served.
    expect(Math.min(...crowd)).toBeGreaterThan(0);
    expect(Math.max(...crowd) - Math.min(...crowd)).toBeLessThanOrEqual(1);
    // One client of a store of its own is served no slower than a few of the crowd's turns.
    expect(await others).toBeGreaterThan(total / 8);
    expect(agent.log().filter(({ event }) => event === "lost")).toEqual([]);
    expect((await hot.call("status", {})).counts.held).toBeGreaterThanOrEqual(STORES);
  },
  TEST_MS,
);
