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
import { cpuSeconds } from "./usage.ts";

/** The compiler is at work on an agent's first ten thousand guards; most of its life comes after them. */
const WARM_UP = 12_000;
/** The first ones of an agent, of which the slowest are told besides. */
const FIRST = 4_000;
const ROUNDS = 8_000;
const CLUSTER_ROUNDS = 3_000;
const CLIENTS = 64;
/** Rates are taken in turns of this length, each preceded by one that is not counted. */
const TURN_MS = 1_000;
const WARM_UP_MS = 400;
const TURNS = 4;

/** Latency of one client on one server (R1) and on a cluster (R3), and rates of many clients. */
export async function guard(): Promise<void> {
  const server = await NatsServer.start();
  await latency("guard_r1", server.url, ROUNDS);
  await rates(server);
  await server.stop();
  const cluster = await NatsCluster.start();
  await latency("guard_r3", cluster.urls.join(","), CLUSTER_ROUNDS);
  await cluster.stop();
}

/** The client library's own key-value store on the agent's bucket. */
export async function openBare(url: string, key: string) {
  const nc = await connectNats({ servers: url.split(",") });
  const kv = await new Kvm(jetstream(nc)).open("leases");
  let revision = await kv.create(key, "bench");
  return {
    update: async () => void (revision = await kv.update(key, "bench", revision)),
    close: () => nc.close(),
  };
}

async function latency(name: string, url: string, rounds: number): Promise<void> {
  await using agent = await RealAgent.start({ node: "bench", nats: url, flags: QUIET });
  agent.makeStore("store");
  const client = await agent.client();
  const bare = await openBare(url, "bare");
  // New replicated buckets take a moment to elect their leaders: refused until then, truly.
  await until("the first grant", async () => {
    const grant = await client.call("guard", { store: "store" }).catch(() => null);
    return grant && await client.call("release", { token: grant.token });
  });
  const guards: number[] = [];
  const updates: number[] = [];
  const sockets: number[] = [];
  const pairs: number[] = [];
  const first: number[] = [];
  for (let i = 0; i < WARM_UP + rounds; i++) {
    let token = "";
    const guardUs = await timeUs(async () => {
      ({ token } = await client.call("guard", { store: "store" }));
    });
    const releaseUs = await timeUs(() => client.call("release", { token }));
    const updateUs = await timeUs(bare.update);
    // Answered from memory: what the way through the socket takes, there and back.
    const socketUs = await timeUs(() => client.call("held", { store: "store" }));
    if (i < FIRST) first.push(guardUs);
    if (i < WARM_UP) continue;
    guards.push(guardUs);
    pairs.push(guardUs + releaseUs);
    updates.push(updateUs);
    sockets.push(socketUs);
  }
  printPair(name, guards, updates);
  print({ name: `${name}_first_p99`, value: quantile(first, 0.99), unit: "us" });
  // What a guard cannot beat: one round trip through the socket and one compare-and-set.
  print({
    name: `${name}_over_its_parts_p50`,
    value: quantile(guards, 0.5),
    unit: "us",
    vs: quantile(updates, 0.5) + quantile(sockets, 0.5),
  });
  print({ name: `${name}_and_release_p50`, value: quantile(pairs, 0.5), unit: "us" });
  await bare.close();
}

/** What is done over and over: by all clients at once, until it is time. */
type Work = (until: number) => Promise<number>;

/**
 * Guards a second, each released at once, beside compare-and-sets one after the other (`bare`) and
 * beside 64 workers that renew under one mutex, as the forge's earlier program did (`mutexed`: the
 * same library, without its disk and without a socket). They take turns.
 */
async function rates(server: NatsServer): Promise<void> {
  await using agent = await RealAgent.start({ node: "bench", nats: server.url, flags: QUIET });
  const stores = Array.from({ length: CLIENTS }, (_, i) => `s${i}`);
  for (const store of stores) agent.makeStore(store);
  const clients = await Promise.all(stores.map(() => agent.client()));
  const bare = await openBare(server.url, "rate");
  const works: Record<string, Work> = {
    bare: (until) => repeat(until, bare.update),
    mutexed: mutexed(bare.update),
    guards_64_stores: guarding(clients, (i) => ({ store: stores[i] })),
    guards_1_store_shared: guarding(
      clients,
      () => ({ store: "s0", shared: true, wait_ms: 10_000 }),
    ),
    guards_1_store_exclusive: guarding(clients, () => ({ store: "s0", wait_ms: 10_000 })),
  };
  const measured = await inTurns(works, [agent.pid, server.pid]);
  const rateOf = (name: string) => quantile(measured[name].map(({ rate }) => rate), 0.5);
  for (const name of Object.keys(works).slice(1)) {
    const vs = rateOf(name === "guards_1_store_exclusive" ? "bare" : "mutexed");
    if (name === "mutexed") continue;
    print({ name, value: rateOf(name), unit: "1/s", vs });
    // Which of them has no time left: the agent's work is one thread, the machine's may be two.
    ["clients", "agent", "server"].forEach((who, i) => {
      const value = quantile(measured[name].map(({ cpuUs }) => cpuUs[i]), 0.5);
      print({ name: `${name}_cpu_${who}`, value, unit: "us" });
    });
  }
  await bare.close();
}

interface Turn {
  /** Times a second. */
  readonly rate: number;
  /** Processor time each, in microseconds: ours, and that of the processes that were named. */
  readonly cpuUs: readonly number[];
}

async function inTurns(works: Record<string, Work>, pids: readonly number[]) {
  const turns: Record<string, Turn[]> = {};
  for (let turn = 0; turn < TURNS; turn++) {
    for (const [name, work] of Object.entries(works)) {
      await work(performance.now() + WARM_UP_MS);
      const before = [process.pid, ...pids].map(cpuSeconds);
      const start = performance.now();
      const count = await work(start + TURN_MS);
      const rate = count / ((performance.now() - start) / 1_000);
      const cpuUs = [process.pid, ...pids].map((pid, i) =>
        (cpuSeconds(pid) - before[i]) * 1e6 / count
      );
      (turns[name] ??= []).push({ rate, cpuUs });
    }
  }
  return turns;
}

function guarding(
  clients: readonly Connection[],
  paramsOf: (i: number) => { store: string; shared?: boolean; wait_ms?: number },
): Work {
  return async (until) => {
    const counts = await Promise.all(clients.map((client, i) =>
      repeat(until, async () => {
        const { token } = await client.call("guard", paramsOf(i));
        await client.call("release", { token });
      })
    ));
    return counts.reduce((sum, count) => sum + count, 0);
  };
}

function mutexed(update: () => Promise<void>): Work {
  let last: Promise<void> = Promise.resolve();
  return async (until) => {
    const workers = Array.from(
      { length: CLIENTS },
      () => repeat(until, () => last = last.then(update)),
    );
    return (await Promise.all(workers)).reduce((sum, count) => sum + count, 0);
  };
}

async function repeat(until: number, act: () => Promise<void>): Promise<number> {
  let count = 0;
  for (; performance.now() < until; count++) await act();
  return count;
}

/** The debug log that tests read would be measured, too. */
const QUIET = ["--log-level", "info"] as const;
