/**
 * How long recoveries take: each provoked ten times with real agents and servers on the loopback, by
 * a client that asks again and again, as one in a hurry would. A JSON line a figure: `{name, value,
 * unit, max, samples, ttl_ms}`; `value` is the median.
 *
 * `bun figures.ts [--ttl 5] [--samples 10] [name…]`
 * @module
 */
import { parseArgs } from "node:util";
import { AgentError, type Connection } from "../../src/client/mod.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { NatsCluster, NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const { values, positionals } = parseArgs({
  options: {
    ttl: { type: "string", default: "15" },
    samples: { type: "string", default: "10" },
  },
  allowPositionals: true,
});
const ttlMs = Number(values.ttl) * 1_000;
const samples = Number(values.samples);

/** Pairs of agents that are measured at once, where they only wait: two cores carry so many. */
const AT_ONCE = 5;
/** Longer than any wait here. */
const WAIT_MS = 120_000;

const MEASURES: Record<string, () => Promise<Record<string, number[]>>> = {
  host_dies: () => successions("SIGKILL", "holder_host_dies_to_next_grant"),
  handoff: () => successions("SIGTERM", "clean_handoff_to_next_grant"),
  restart: agentRestarts,
  leader: leaderKilled,
  majority: majorityDown,
  frozen: coordinatorFrozen,
};

const names = positionals.length > 0 ? positionals : Object.keys(MEASURES);
for (const name of names) {
  if (!(name in MEASURES)) throw new Error(`Choose from ${Object.keys(MEASURES).join(", ")}`);
  for (const [figure, took] of Object.entries(await MEASURES[name]())) print(figure, took);
}
process.exit(0);

function print(name: string, took: readonly number[]): void {
  const sorted = [...took].sort((a, b) => a - b);
  const value = Math.round(sorted[sorted.length >> 1] * 10) / 10;
  const max = Math.round(sorted.at(-1)! * 10) / 10;
  const unit = name.endsWith("_count") ? "count" : "ms";
  console.log(JSON.stringify({ name, value, unit, max, samples: took.length, ttl_ms: ttlMs }));
}

/** A holder ends; how long until another node that waits is granted. */
async function successions(
  signal: "SIGKILL" | "SIGTERM",
  figure: string,
): Promise<Record<string, number[]>> {
  await using server = await NatsServer.start();
  await using heir = await startAgent("heir", server.url);
  const took: number[] = [];
  for (let done = 0; done < samples; done += AT_ONCE) {
    const batch = Array.from({ length: Math.min(AT_ONCE, samples - done) }, (_, i) => done + i);
    took.push(...await Promise.all(batch.map((i) => succession(i, { server, heir, signal }))));
  }
  return { [figure]: took };
}

async function succession(
  index: number,
  { server, heir, signal }: {
    server: NatsServer;
    heir: RealAgent;
    signal: "SIGKILL" | "SIGTERM";
  },
): Promise<number> {
  const store = `s${index}`;
  await using holder = await startAgent(`holder-${index}`, server.url);
  for (const agent of [holder, heir]) agent.makeStore(store);
  await guardOnce(await holder.client(), store);
  const waiting = (await heir.client())
    .call("guard", { store, wait_ms: WAIT_MS, wait_lease: true });
  await heir.logged("foreign", { store });
  // Anywhere between two renewals, as a death would be.
  await Bun.sleep((ttlMs / 3) * Math.random());
  const startMs = bootTimeMs();
  holder.signal(signal);
  await waiting;
  const tookMs = bootTimeMs() - startMs;
  await holder.exited();
  return tookMs;
}

/** The agent is killed and started again, as its service manager would: until it grants again. */
async function agentRestarts(): Promise<Record<string, number[]>> {
  await using server = await NatsServer.start();
  let agent = await startAgent("alpha", server.url);
  agent.makeStore("one");
  const took: number[] = [];
  for (let i = 0; i < samples; i++) {
    const client = await agent.client();
    await guardOnce(client, "one");
    const { state, locks } = agent;
    const startMs = bootTimeMs();
    await agent.end("SIGKILL");
    await client.close();
    agent = await startAgent("alpha", server.url, { state, locks });
    await guardOnce(await agent.client(), "one");
    took.push(bootTimeMs() - startMs);
  }
  await agent[Symbol.asyncDispose]();
  return { agent_killed_and_restarted_to_next_grant: took };
}

/** The leader of the stream is killed while a client guards without a pause. */
async function leaderKilled(): Promise<Record<string, number[]>> {
  await using cluster = await NatsCluster.start();
  await using agent = await startAgent("alpha", cluster.urls.join(","));
  agent.makeStore("one");
  const client = await agent.client();
  await guardOnce(client, "one");
  const took: number[] = [];
  for (let i = 0; i < samples; i++) {
    const leader = await cluster.leader("KV_leases");
    await leader.kill();
    const startMs = bootTimeMs();
    await guardOnce(client, "one");
    took.push(bootTimeMs() - startMs);
    await leader.restart();
    await cluster.healthy();
  }
  const lost = agent.log().filter(({ event }) => event === "lost").length;
  return { leader_killed_to_next_grant: took, leader_killed_leases_lost_count: [lost] };
}

/** Two of three servers go, for shorter than a TTL, and come back: from their start to a grant. */
async function majorityDown(): Promise<Record<string, number[]>> {
  await using cluster = await NatsCluster.start();
  await using agent = await startAgent("alpha", cluster.urls.join(","));
  agent.makeStore("one");
  const client = await agent.client();
  await guardOnce(client, "one");
  const took: number[] = [];
  for (let i = 0; i < samples; i++) {
    const victims = cluster.servers.filter((_, index) => index !== i % 3);
    await Promise.all(victims.map((server) => server.kill()));
    await Bun.sleep(ttlMs / 3);
    const startMs = bootTimeMs();
    await Promise.all(victims.map((server) => server.restart()));
    await guardOnce(client, "one");
    took.push(bootTimeMs() - startMs);
    await cluster.healthy();
  }
  const lost = agent.log().filter(({ event }) => event === "lost").length;
  return { two_of_three_back_to_next_grant: took, two_of_three_down_leases_lost_count: [lost] };
}

/** The coordinator hangs: how long a guard takes to be refused, the first and when it is known. */
async function coordinatorFrozen(): Promise<Record<string, number[]>> {
  await using server = await NatsServer.start();
  await using agent = await startAgent("alpha", server.url);
  agent.makeStore("one");
  const client = await agent.client();
  const first: number[] = [];
  const known: number[] = [];
  for (let i = 0; i < samples; i++) {
    await guardOnce(client, "one");
    server.freeze();
    first.push(await refusedAfterMs(client));
    // Given up on after two pings. By status: the log tells of one thing five times a minute at most.
    await until(
      "the coordinator is known to be down",
      async () => !(await client.call("status", {})).coordinator.connected,
    );
    known.push(await refusedAfterMs(client));
    server.thaw();
  }
  return { coordinator_frozen_to_refusal: first, coordinator_known_down_to_refusal: known };
}

async function refusedAfterMs(client: Connection): Promise<number> {
  const startMs = bootTimeMs();
  try {
    await client.call("guard", { store: "one", wait_ms: 60_000 });
  } catch (error) {
    if (error instanceof AgentError && error.kind === "unavailable") return bootTimeMs() - startMs;
    throw error;
  }
  throw new Error("It was granted though the coordinator was frozen");
}

function startAgent(
  node: string,
  nats: string,
  more: { state?: string; locks?: string } = {},
): Promise<RealAgent> {
  return RealAgent.start({ node, nats, flags: ["--ttl", `${ttlMs}ms`], ...more });
}

/** Guards and releases, trying again until it is granted. */
async function guardOnce(client: Connection, store: string): Promise<void> {
  while (true) {
    try {
      const { token } = await client.call("guard", { store, wait_ms: WAIT_MS, wait_lease: true });
      return void await client.call("release", { token });
    } catch (error) {
      if (!(error instanceof AgentError) || error.kind !== "unavailable") throw error;
      await Bun.sleep(20);
    }
  }
}
