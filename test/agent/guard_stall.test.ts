/**
 * `agent guard` over a stall that is shorter than the TTL: the command was asked to end because its
 * lease was about to run out, and then the lease is renewed after all.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { fleet, guardOne } from "../support/fleet.ts";
import { freezeProcess } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import type { RealAgent } from "../support/real_agent.ts";
import { reapDir } from "../support/reaper.ts";
import { isRunning } from "../support/running.ts";
import { until } from "../support/wait.ts";

/** A third of it lies between asking and killing: time enough to renew the lease in. */
const TTL_MS = 6_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), "guard-stall-"));
  reapDir(dir);
  return dir;
}

/** A shell that ends when asked, and children of it that do not: one in the group, one outside. */
const TREE = `
sh -c 'trap "" TERM; while :; do echo "$$" >> "$0.writes"; sleep 0.02; done' "$1" & child=$!
setsid sh -c 'trap "" TERM; while :; do echo "$$" >> "$0.writes"; sleep 0.02; done' "$1" & left=$!
trap 'echo > "$1.asked"; exit 0' TERM
echo $child $left > "$1.tmp"; mv "$1.tmp" "$1.pids"
while :; do sleep 0.05; done`;

async function pidsIn(path: string): Promise<number[]> {
  await until("its processes are known", () => existsSync(path));
  return readFileSync(path, "utf8").trim().split(" ").map(Number);
}

/** Starts the tree under a guard. */
async function startTree(agent: RealAgent) {
  const path = join(scratch(), "tree");
  const guard = guardOne(agent, ["bash", "-c", TREE, "bash", path]);
  const pids = await pidsIn(`${path}.pids`);
  return {
    guard,
    pids,
    asked: () => until("the command is asked to end", () => existsSync(`${path}.asked`)),
  };
}

/** Freezes the coordinator right after a renewal. */
async function stall(agent: RealAgent): Promise<void> {
  await agent.logged("renewed", {}, agent.log().length);
  server.freeze();
}

/** Thaws it, and waits until the agent holds the lease for another TTL. */
async function recover(agent: RealAgent): Promise<void> {
  const from = agent.log().length;
  server.thaw();
  await agent.logged("renewed", {}, from);
}

test("what was asked to end is killed in time, though the lease is renewed meanwhile", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { guard, pids, asked } = await startTree(alpha);
  await stall(alpha);
  await asked();
  const askedMs = bootTimeMs();
  await recover(alpha);
  expect(await guard.exited).toBe(79);
  // Nothing was alive any more when it ended, and it ended when it had said: not a TTL later.
  expect(pids.filter(isRunning)).toEqual([]);
  expect(bootTimeMs() - askedMs).toBeLessThan(TTL_MS / 3 + 1_500);
  const said = await guard.stderr;
  expect(said).toContain(
    "the lease on one is about to run out (the agent did not renew it in time)",
  );
  expect(said).toContain("bash was ended, because the lease on one was about to run out");
  expect(said).not.toContain("went");
  expect(said).not.toContain("could not end");
  expect(alpha.log().filter(({ event }) => event === "lost")).toEqual([]);
});

test("the grant is given back only when nothing of the command is alive", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { guard, pids, asked } = await startTree(alpha);
  await stall(alpha);
  await asked();
  await recover(alpha);
  const client = await alpha.client();
  const { released } = await client.call("stepdown", { store: "one" });
  expect([released, pids.filter(isRunning)]).toEqual([1, []]);
  expect(await guard.exited).toBe(79);
});

test("the watchdog's decision stands as well, for the wrapper, too", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { guard, pids, asked } = await startTree(alpha);
  await stall(alpha);
  freezeProcess(guard.pid);
  await asked();
  await recover(alpha);
  guard.kill("SIGCONT");
  expect(await guard.exited).toBe(79);
  expect(pids.filter(isRunning)).toEqual([]);
});

test("a wrapper that is killed after it asked leaves the watchdog its decision", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { guard, pids, asked } = await startTree(alpha);
  await stall(alpha);
  await asked();
  const askedMs = bootTimeMs();
  await recover(alpha);
  guard.kill("SIGKILL");
  await until("all of it is dead", () => !pids.some(isRunning), TTL_MS * 2);
  expect(bootTimeMs() - askedMs).toBeLessThan(TTL_MS / 3 + 1_500);
});
