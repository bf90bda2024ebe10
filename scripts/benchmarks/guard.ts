/**
 * What a guard costs, beside a bare compare-and-set by the same NATS library in the same process.
 * The two take turns, so that both see the same machine and the same server.
 * @module
 */
import { jetstream } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { connect as connectNats } from "@nats-io/transport-node";
import type { Connection } from "../../src/client/mod.ts";
import { NatsCluster, NatsServer } from "../../test/support/nats.ts";
import { RealAgent } from "../../test/support/real_agent.ts";
import { until } from "../../test/support/wait.ts";
import { print, printPair, quantile, timeUs } from "./figures.ts";

const WARM_UP = 500;
const ROUNDS = 4_000;
const CLUSTER_ROUNDS = 1_500;
const CLIENTS = 64;
const RATE_MS = 3_000;

/** Latency of one client on one server (R1) and on a cluster (R3), and rates of many clients. */
export async function guard(): Promise<void> {
  const server = await NatsServer.start();
  await latency("guard_r1", server.url, ROUNDS);
  await rates(server.url);
  await server.stop();
  const cluster = await NatsCluster.start();
  await latency("guard_r3", cluster.urls.join(","), CLUSTER_ROUNDS);
  await cluster.stop();
}

async function latency(name: string, url: string, rounds: number): Promise<void> {
  await using agent = await RealAgent.start({ node: "bench", nats: url, flags: QUIET });
  agent.makeStore("store");
  const client = await agent.client();
  const nc = await connectNats({ servers: url.split(",") });
  const kv = await new Kvm(jetstream(nc)).open("leases");
  let revision = await kv.create("bare", "bench");
  // New replicated buckets take a moment to elect their leaders: refused until then, truly.
  await until("the first grant", async () => {
    const grant = await client.call("guard", { store: "store" }).catch(() => null);
    return grant && await client.call("release", { token: grant.token });
  });
  const guards: number[] = [];
  const updates: number[] = [];
  const pairs: number[] = [];
  for (let i = 0; i < WARM_UP + rounds; i++) {
    let token = "";
    const guardUs = await timeUs(async () => {
      ({ token } = await client.call("guard", { store: "store" }));
    });
    const releaseUs = await timeUs(() => client.call("release", { token }));
    const updateUs = await timeUs(async () => {
      revision = await kv.update("bare", "bench", revision);
    });
    if (i < WARM_UP) continue;
    guards.push(guardUs);
    pairs.push(guardUs + releaseUs);
    updates.push(updateUs);
  }
  printPair(name, guards, updates);
  print({ name: `${name}_and_release_p50`, value: quantile(pairs, 0.5), unit: "us" });
  await nc.close();
}

/** Guards a second, each released at once. */
async function rates(url: string): Promise<void> {
  await using agent = await RealAgent.start({ node: "bench", nats: url, flags: QUIET });
  const stores = Array.from({ length: CLIENTS }, (_, i) => `s${i}`);
  for (const store of stores) agent.makeStore(store);
  const clients = await Promise.all(stores.map(() => agent.client()));
  const bare = await bareRate(url);
  const shapes = {
    guards_64_stores: (i: number) => ({ store: stores[i] }),
    guards_1_store_shared: () => ({ store: "s0", shared: true, wait_ms: 10_000 }),
    guards_1_store_exclusive: () => ({ store: "s0", wait_ms: 10_000 }),
  };
  for (const [name, paramsOf] of Object.entries(shapes)) {
    const value = await rate(clients, paramsOf);
    const vs = name === "guards_1_store_exclusive" ? bare : undefined;
    print({ name, value, unit: "1/s", vs });
  }
}

async function rate(
  clients: readonly Connection[],
  paramsOf: (i: number) => { store: string; shared?: boolean; wait_ms?: number },
): Promise<number> {
  let count = 0;
  const start = performance.now();
  const end = start + RATE_MS;
  await Promise.all(clients.map(async (client, i) => {
    while (performance.now() < end) {
      const { token } = await client.call("guard", paramsOf(i));
      await client.call("release", { token });
      count++;
    }
  }));
  return count / ((performance.now() - start) / 1_000);
}

/** Compare-and-sets a second of one key, one after the other. */
async function bareRate(url: string): Promise<number> {
  const nc = await connectNats({ servers: url });
  const kv = await new Kvm(jetstream(nc)).open("leases");
  let revision = await kv.create("rate", "bench");
  let count = 0;
  const start = performance.now();
  while (performance.now() < start + RATE_MS) {
    revision = await kv.update("rate", "bench", revision);
    count++;
  }
  await nc.close();
  return count / ((performance.now() - start) / 1_000);
}

/** The debug log that tests read would be measured, too. */
const QUIET = ["--log-level", "info"] as const;
