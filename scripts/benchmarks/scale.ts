/**
 * What it takes to hold very many stores: how long acquiring them takes, what renewing them costs
 * agent and server, what a guard notices of it, and what a program that does nothing but the same
 * writes would need.
 * @module
 */
import { writeFileSync } from "node:fs";
import type { Connection } from "../../src/client/mod.ts";
import { NatsServer } from "../../test/support/nats.ts";
import { RealAgent } from "../../test/support/real_agent.ts";
import { until } from "../../test/support/wait.ts";
import { print, quantile, timeUs } from "./figures.ts";
import { openBare } from "./guard.ts";
import { cpuSeconds, load, memoryMib, since, usage } from "./usage.ts";

const GUARDS = 1_500;
const HOLD_MS = Number(process.env.ZIT_BENCH_HOLD ?? 60) * 1_000;
const TTL_MS = 15_000;
const BARE = new URL("bare_holder.ts", import.meta.url).pathname;

/** Holds `ZIT_BENCH_STORES` stores (default 1,000, 10,000 and 100,000) for a minute each. */
export async function scale(): Promise<void> {
  const sizes = (process.env.ZIT_BENCH_STORES ?? "1000,10000,100000").split(",").map(Number);
  for (const size of sizes) await new Scale(size).run();
}

class Scale {
  readonly #size: number;
  /** Guards of an idle agent on an idle server, in microseconds. */
  #idle: number[] = [];
  /** Memory of that agent, in MiB. */
  #idleMib = 0;

  constructor(size: number) {
    this.#size = size;
  }

  async run(): Promise<void> {
    {
      await using server = await NatsServer.start();
      await this.#measureIdle(server.url);
      await this.#agent(server);
    }
    await using server = await NatsServer.start();
    await (await RealAgent.start({ node: "maker", nats: server.url })).end("SIGTERM");
    await this.#bare(server);
  }

  #print(name: string, value: number, unit: string, vs?: number): void {
    print({ name: `${name}_${this.#size}`, value, unit, vs });
  }

  async #agent(server: NatsServer): Promise<void> {
    const file = `${server.dir}/stores`;
    writeFileSync(file, Array.from({ length: this.#size }, (_, i) => `s${i}`).join("\n"));
    const serverCpu = cpuSeconds(server.pid);
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
    await until("all are held", async () => {
      const { counts } = await client.call("status", {});
      return counts.held >= this.#size || Bun.sleep(100);
    }, 300_000);
    this.#print("acquire", (performance.now() - start) / 1_000, "s");
    this.#print("acquire_cpu", cpuSeconds(agent.pid), "s");
    this.#print("acquire_server_cpu", cpuSeconds(server.pid) - serverCpu, "s");
    this.#print("acquire_memory", memoryMib(agent.pid, "VmHWM"), "MiB");
    const times = await during;
    this.#print("guard_while_acquiring_p99", quantile(times, 0.99), "us", this.#idle99);
    await this.#holding(agent, client, server);
  }

  async #measureIdle(url: string): Promise<void> {
    await using agent = await RealAgent.start({ node: "idle", nats: url });
    this.#idle = await guardTimes(agent);
    this.#idleMib = memoryMib(agent.pid);
    await agent.end("SIGTERM");
  }

  get #idle99(): number {
    return quantile(this.#idle, 0.99);
  }

  async #holding(agent: RealAgent, client: Connection, server: NatsServer): Promise<void> {
    const quiet = await this.#resting(agent, server);
    this.#print("cpu_holding", quiet.client / quiet.seconds, "cores");
    this.#print("server_cpu_holding", quiet.server / quiet.seconds, "cores");
    this.#print("messages_holding", quiet.messages / quiet.seconds, "1/s");
    this.#print("bytes_holding", quiet.bytes / quiet.seconds, "B/s");
    this.#print("load", load(), "");
    const guards: number[] = [];
    const start = performance.now();
    // What of a guard's delay is the server's and the machine's, and what the agent's.
    const bare = await openBare(server.url, "bare");
    const updates: number[] = [];
    const questions: number[] = [];
    while (performance.now() < start + HOLD_MS / 2) {
      guards.push(...await guardTimes(agent, 50));
      for (let i = 0; i < 50; i++) updates.push(await timeUs(bare.update));
      for (let i = 0; i < 50; i++) questions.push(await timeUs(() => held(client)));
      await Bun.sleep(500);
    }
    await bare.close();
    this.#print("guard_while_holding_p99", quantile(guards, 0.99), "us", this.#idle99);
    this.#print("update_while_holding_p99", quantile(updates, 0.99), "us");
    this.#print("held_while_holding_p99", quantile(questions, 0.99), "us");
    this.#print("guard_while_holding_p50", quantile(guards, 0.5), "us", quantile(this.#idle, 0.5));
    this.#print("memory_holding", memoryMib(agent.pid), "MiB", this.#idleMib);
    this.#print("memory_server", memoryMib(server.pid), "MiB");
    const { counts } = await client.call("status", {});
    const lost = agent.log().filter(({ event }) => event === "lost").length;
    this.#print("lapsed", lost + Math.max(0, this.#size - counts.held), "stores");
  }

  /** Nobody asks it for anything meanwhile. */
  async #resting(agent: RealAgent, server: NatsServer) {
    const before = await usage(agent.pid, server);
    await Bun.sleep(HOLD_MS / 2);
    return since(before, await usage(agent.pid, server));
  }

  /** The same writes by a program that does nothing else. */
  async #bare(server: NatsServer): Promise<void> {
    const serverCpu = cpuSeconds(server.pid);
    const seconds = HOLD_MS / 2_000;
    const bare = Bun.spawn({
      cmd: [process.execPath, BARE, server.url, `${this.#size}`, `${seconds}`, `${TTL_MS / 3_000}`],
      stdout: "pipe",
      stderr: "inherit",
    });
    const lines = bare.stdout.pipeThrough(new TextDecoderStream()).getReader();
    const { acquired } = JSON.parse((await lines.read()).value!);
    this.#print("bare_acquire", acquired, "s");
    this.#print("bare_acquire_cpu", cpuSeconds(bare.pid), "s");
    this.#print("bare_acquire_server_cpu", cpuSeconds(server.pid) - serverCpu, "s");
    const before = await usage(bare.pid, server);
    await Bun.sleep((seconds - 2) * 1_000);
    const used = since(before, await usage(bare.pid, server));
    this.#print("bare_cpu_holding", used.client / used.seconds, "cores");
    this.#print("bare_server_cpu_holding", used.server / used.seconds, "cores");
    this.#print("bare_memory_holding", memoryMib(bare.pid), "MiB");
    const { renewals } = JSON.parse((await lines.read()).value!);
    this.#print("bare_renewals", renewals / seconds, "1/s", this.#size / (TTL_MS / 3_000));
    await bare.exited;
  }
}

/** Answered from memory: no coordinator, no disk. */
function held(client: Connection): Promise<unknown> {
  return client.call("held", { store: "s0" });
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

const QUIET = ["--log-level", "warn"] as const;
