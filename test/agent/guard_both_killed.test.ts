/** `agent guard` and its watchdog killed or stopped: the agent ends what they left, by its deadline. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Cut } from "../support/cut.ts";
import { fleet, type Guarded, guardOne, guardStore } from "../support/fleet.ts";
import { freezeProcess, killTogether } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import { type RealAgent, runClient } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";
import { isRunning } from "../support/running.ts";
import { until } from "../support/wait.ts";
import { watchdogOf } from "../support/watchdog_of.ts";

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

async function startTree(
  agent: RealAgent,
  store = "one",
): Promise<{ guard: Guarded; pids: number[] }> {
  const path = join(agent.dir, `pids-${store}`);
  const guard = guardStore(agent, store, ["sh", "-c", STUBBORN, path]);
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

async function killBoth(guard: Guarded, pids: readonly number[]): Promise<void> {
  killTogether([guard.pid, watchdogOf(guard.pid, pids)]);
  await guard.exited;
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

describe("a guard that was stopped and loses its lease", () => {
  const ways: [how: string, end: (pid: number) => void][] = [
    ["killed", (pid) => process.kill(pid, "SIGKILL")],
    ["stopped, too", freezeProcess],
  ];
  test.each(ways)("is ended by the agent when its watchdog was %s", async (_how, end) => {
    await using alpha = await fleet(server.url, TTL_MS)("alpha");
    const { guard, pids } = await startTree(alpha);
    const watchdog = watchdogOf(guard.pid, pids);
    freezeProcess(guard.pid); // first: it would start another
    end(watchdog);
    server.freeze();
    try {
      const killed = await alpha.logged("leftovers_killed");
      expect(killed.pids.toSorted()).toEqual(expect.arrayContaining(pids.toSorted()));
      expect(pids.filter(isRunning)).toEqual([]);
      expect(isRunning(guard.pid)).toBe(true);
    } finally {
      server.thaw();
      if (isRunning(watchdog)) process.kill(watchdog, "SIGKILL");
    }
    // Continued, it says what happened, and lets go.
    guard.kill("SIGCONT");
    expect(await guard.exited).toBe(79);
    expect((await runClient(alpha, ["guard", "one", "--wait", "20s", "--", "true"])).status).toBe(
      0,
    );
  });

  test("ends before another node is granted, when its node alone is cut off", async () => {
    const start = fleet(server.url, TTL_MS);
    await using proxy = await Cut.of(server.port);
    await using alpha = await start("alpha", { nats: proxy.url });
    await using beta = await start("beta");
    const { guard, pids } = await startTree(alpha);
    const watchdog = watchdogOf(guard.pid, pids);
    freezeProcess(guard.pid);
    process.kill(watchdog, "SIGKILL");
    proxy.cut();
    const next = guardOne(beta, [
      "sh",
      "-c",
      `for pid in ${pids.join(" ")}; do
      kill -0 $pid 2>/dev/null && grep -q '^State:.[^Z]' /proc/$pid/status && echo $pid; done; true`,
    ], {
      flags: ["--wait-lease", "--wait", "60s"],
    });
    expect([await next.exited, await next.stdout]).toEqual([0, ""]);
    await alpha.logged("leftovers_killed");
    guard.kill("SIGKILL");
  });
});

test("a client that lost its grant and lets go of nothing is left alone, and what it started", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const client = await alpha.client();
  const { token } = await client.call("guard", { store: "one", pass_lock: true });
  const child = Bun.spawn(["sleep", "600"], { env: { ZIT_LEASE_TOKEN: token } });
  reap(child.pid);
  // A guard of the same agent whose command is looked for at the same time, and later than that.
  alpha.makeStore("two");
  const { guard, pids } = await startTree(alpha, "two");
  freezeProcess(guard.pid);
  process.kill(watchdogOf(guard.pid, pids), "SIGKILL");
  server.freeze();
  try {
    await alpha.logged("leftovers_killed", { store: "two" });
  } finally {
    server.thaw();
  }
  expect(isRunning(child.pid)).toBe(true);
  expect(alpha.log().filter(({ event }) => event.startsWith("leftovers"))).toHaveLength(1);
  child.kill("SIGKILL");
  guard.kill("SIGKILL");
});
