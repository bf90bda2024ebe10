/**
 * How long commands take from start to end, beside the start of an empty program compiled the same
 * way; how long the daemon takes to answer; what it weighs.
 * @module
 */
import { mkdtempSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NatsServer } from "../../test/support/nats.ts";
import { AGENT, RealAgent } from "../../test/support/real_agent.ts";
import { until } from "../../test/support/wait.ts";
import { print, quantile, timeUs } from "./figures.ts";

const ROUNDS = 40;

/** Starts of commands and of the daemon. */
export async function start(): Promise<void> {
  const bare = compileBare();
  const server = await NatsServer.start();
  {
    await using agent = await RealAgent.start({ node: "bench", nats: server.url, flags: QUIET });
    agent.makeStore("store");
    const env = { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket };
    const commands = {
      start_version: ["--version"],
      start_held: ["held", "store"],
      start_check: ["--check"],
      start_guard: ["guard", "store", "--", "true"],
    };
    await run([AGENT, "held", "store"], env);
    for (const [name, args] of Object.entries(commands)) {
      const [ours, theirs] = await alternate([AGENT, ...args], [bare], env);
      print({ name, value: ours, unit: "ms", vs: theirs });
    }
  }
  await daemon(server.url);
  await server.stop();
  print({ name: "executable_size", value: statSync(AGENT).size / 1e6, unit: "MB" });
}

/** An empty program, compiled as the agent is. */
function compileBare(): string {
  const dir = mkdtempSync(join(tmpdir(), "bare-"));
  writeFileSync(join(dir, "bare.ts"), "");
  const flags = ["build", "--compile", "--minify", "--bytecode", "--format=esm"];
  const out = join(dir, "bare");
  Bun.spawnSync([process.execPath, ...flags, join(dir, "bare.ts"), "--outfile", out]);
  return out;
}

async function run(cmd: readonly string[], env: Record<string, string>): Promise<void> {
  const child = Bun.spawn({
    cmd: [...cmd],
    env,
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
  });
  const status = await child.exited;
  if (status !== 0) throw new Error(`${cmd.join(" ")} exited ${status}`);
}

/** Medians of both in milliseconds, one after the other in turn. */
async function alternate(
  a: readonly string[],
  b: readonly string[],
  env: Record<string, string>,
): Promise<[number, number]> {
  const times: [number[], number[]] = [[], []];
  for (let i = 0; i < ROUNDS; i++) {
    times[0].push(await timeUs(() => run(a, env)) / 1_000);
    times[1].push(await timeUs(() => run(b, env)) / 1_000);
  }
  return [quantile(times[0], 0.5), quantile(times[1], 0.5)];
}

/** From starting the daemon to its first answer, and what it takes of memory when idle. */
async function daemon(url: string): Promise<void> {
  const times: number[] = [];
  for (let i = 0; i < 10; i++) {
    const startNs = Bun.nanoseconds();
    await using agent = await RealAgent.start({
      node: "bench",
      nats: url,
      flags: QUIET,
      awaitReady: false,
    });
    const client = await until("it answers", () => agent.client().catch(() => null));
    await until("it is connected", async () => {
      return (await client.call("status", {})).coordinator.connected;
    });
    times.push((Bun.nanoseconds() - startNs) / 1e6);
  }
  print({ name: "daemon_connected", value: quantile(times, 0.5), unit: "ms" });
  await using agent = await RealAgent.start({ node: "bench", nats: url });
  const client = await agent.client();
  await client.call("held", { store: "store" });
  const status = readFileSync(`/proc/${agent.pid}/status`, "utf8");
  const kib = Number(/^VmRSS:\s+(\d+)/m.exec(status)![1]);
  print({ name: "idle_memory", value: kib / 1_024, unit: "MiB" });
}

const QUIET = ["--log-level", "info"] as const;
