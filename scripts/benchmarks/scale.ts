/**
 * What it takes to hold very many stores: how long acquiring them takes, what renewing them costs,
 * and what a guard notices of it.
 * @module
 */
import { readFileSync, writeFileSync } from "node:fs";
import type { Connection } from "../../src/client/mod.ts";
import { NatsServer } from "../../test/support/nats.ts";
import { RealAgent } from "../../test/support/real_agent.ts";
import { until } from "../../test/support/wait.ts";
import { print, quantile, timeUs } from "./figures.ts";

const GUARDS = 1_500;
const HOLD_MS = 60_000;
/** Kernel ticks a second, as /proc counts processor time. */
const TICKS = 100;

/** Holds `ZIT_BENCH_STORES` stores (default 1,000, 10,000 and 100,000) for a minute each. */
export async function scale(): Promise<void> {
  const sizes = (process.env.ZIT_BENCH_STORES ?? "1000,10000,100000").split(",").map(Number);
  for (const size of sizes) await hold(size);
}

async function hold(size: number): Promise<void> {
  const server = await NatsServer.start();
  const file = `${server.dir}/stores`;
  writeFileSync(file, Array.from({ length: size }, (_, i) => `s${i}`).join("\n"));
  const before = await idleTimes(server.url);
  const start = performance.now();
  await using agent = await RealAgent.start({
    node: "bench",
    nats: server.url,
    flags: [...QUIET, "--stores", file],
    awaitReady: false,
  });
  await until(
    "it answers",
    () => agent.client().then((c) => c.close().then(() => true), () => false),
  );
  const client = await agent.client();
  const during = guardTimes(agent);
  const seconds = await until("all are held", async () => {
    const { counts } = await client.call("status", {});
    return counts.held >= size && (performance.now() - start) / 1_000;
  }, 180_000);
  const name = (what: string) => `${what}_${size}`;
  print({ name: name("acquire"), value: seconds, unit: "s" });
  print({
    name: name("guard_while_acquiring_p99"),
    value: quantile(await during, 0.99),
    unit: "us",
    vs: quantile(before, 0.99),
  });
  await holding(agent, client, size, before, name);
  await server.stop();
}

async function holding(
  agent: RealAgent,
  client: Connection,
  size: number,
  before: readonly number[],
  name: (what: string) => string,
): Promise<void> {
  const cpu = cpuSeconds(agent.pid);
  const start = performance.now();
  const guards: number[] = [];
  let least = size;
  while (performance.now() < start + HOLD_MS) {
    guards.push(...await guardTimes(agent, 50));
    least = Math.min(least, (await client.call("status", {})).counts.held);
    await Bun.sleep(500);
  }
  const cores = (cpuSeconds(agent.pid) - cpu) / ((performance.now() - start) / 1_000);
  print({ name: name("cpu_holding"), value: cores, unit: "cores" });
  print({ name: name("memory_holding"), value: rssMib(agent.pid), unit: "MiB" });
  print({ name: name("lapsed"), value: size - least, unit: "stores" });
  print({
    name: name("guard_while_holding_p99"),
    value: quantile(guards, 0.99),
    unit: "us",
    vs: quantile(before, 0.99),
  });
}

async function idleTimes(url: string): Promise<number[]> {
  await using agent = await RealAgent.start({ node: "idle", nats: url });
  const times = await guardTimes(agent);
  await agent.end("SIGTERM");
  return times;
}

async function guardTimes(agent: RealAgent, rounds = GUARDS): Promise<number[]> {
  agent.makeStore("guarded");
  const client = await agent.client();
  const times: number[] = [];
  for (let i = 0; i < rounds; i++) {
    let token = "";
    times.push(
      await timeUs(async () => {
        ({ token } = await client.call("guard", {
          store: "guarded",
          wait_ms: 60_000,
          wait_lease: true,
        }));
      }),
    );
    await client.call("release", { token });
  }
  await client.close();
  return times;
}

function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

function rssMib(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+)/m.exec(status)![1]) / 1_024;
}

const QUIET = ["--log-level", "warn"] as const;
