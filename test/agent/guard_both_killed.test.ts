/** `agent guard` and its watchdog killed at once: the agent ends what they left, by its deadline. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fleet, type Guarded, guardOne } from "../support/fleet.ts";
import { NatsServer } from "../support/nats.ts";
import { type RealAgent, runClient } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";
import { isRunning } from "../support/running.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 3_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** A tree that does not hear SIGTERM; the second has left the group. */
const STUBBORN = `trap '' TERM
setsid sh -c 'trap "" TERM; while :; do sleep 0.05; done' & echo $$ $! > $0.tmp; mv $0.tmp $0
while :; do sleep 0.05; done`;

async function startTree(agent: RealAgent): Promise<{ guard: Guarded; pids: number[] }> {
  const path = join(agent.dir, "pids");
  const guard = guardOne(agent, ["sh", "-c", STUBBORN, path]);
  const text = await until("the tree runs", () => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return null;
    }
  });
  const pids = text.trim().split(" ").map(Number);
  pids.forEach(reap);
  return { guard, pids };
}

/** Kills the wrapper and every child of it that is not of `pids`: the watchdog. */
async function killBoth({ pid, exited }: Guarded, pids: readonly number[]): Promise<void> {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1").trim().split(" ");
  const watchdogs = children.map(Number).filter((child) => !pids.includes(child));
  expect(watchdogs).toHaveLength(1);
  for (const each of [pid, ...watchdogs]) process.kill(each, "SIGKILL");
  await exited;
}

test("a guard and its watchdog killed by SIGKILL: the agent ends the command at the deadline", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { guard, pids } = await startTree(alpha);
  await killBoth(guard, pids);
  expect(pids.filter(isRunning)).toEqual(pids);
  const killed = await alpha.logged("leftovers_killed");
  expect(killed.pids.toSorted()).toEqual(expect.arrayContaining(pids.toSorted()));
  expect(pids.filter(isRunning)).toEqual([]);
  expect((await runClient(alpha, ["guard", "one", "--", "true"])).status).toBe(0);
});

test("the same while the coordinator hangs: nothing guarded outlives the lease", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { guard, pids } = await startTree(alpha);
  server.freeze();
  try {
    await killBoth(guard, pids);
    const lost = alpha.logged("lost");
    await alpha.logged("leftovers_killed");
    expect(pids.filter(isRunning)).toEqual([]);
    await lost;
  } finally {
    server.thaw();
  }
});

test("what the next guard runs is left alone, though it was granted before that deadline", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { guard, pids } = await startTree(alpha);
  await killBoth(guard, pids);
  for (const pid of pids) process.kill(pid, "SIGKILL");
  const seen = alpha.log().length;
  const next = guardOne(alpha, ["sh", "-c", "sleep 100"], { flags: ["--wait", "20s"] });
  await alpha.logged("granted", {}, seen);
  // Its lease was renewed, so the deadline of the first is past.
  for (let renewals = 0, from = seen; renewals < 4; renewals++) {
    await alpha.logged("renewed", {}, from);
    from = alpha.log().length;
  }
  expect(isRunning(next.pid)).toBe(true);
  expect(alpha.log().filter(({ event }) => event.startsWith("leftovers"))).toEqual([]);
  next.kill("SIGTERM");
  expect(await next.exited).toBe(143);
});
