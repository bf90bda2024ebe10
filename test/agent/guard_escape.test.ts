/**
 * `agent guard` on real agents, mostly without a cgroup: processes that left their group, their environment
 * and their parents end with the lease all the same, because they still have the lock.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fleet, guardOne } from "../support/fleet.ts";
import { killTogether } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, type RealAgent, runClient } from "../support/real_agent.ts";
import { reap, reapDir } from "../support/reaper.ts";
import { isRunning, pidIn } from "../support/running.ts";
import { until } from "../support/wait.ts";
import { watchdogOf } from "../support/watchdog_of.ts";

const TTL_MS = 3_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** Starts `agent guard one FLAGS… -- sh -c SCRIPT` where no cgroup file system is mounted. */
function guardWithoutCgroup(agent: RealAgent, script: string, flags: readonly string[] = []) {
  const unmount = `for at in $(awk '$3 == "cgroup2" { print $2 }' /proc/mounts); do
    umount -l "$at" || exit; done; exec "$@"`;
  const child = Bun.spawn({
    // Each becomes the next: the number is the guard's.
    cmd: [
      ...["unshare", "--mount", "sh", "-c", unmount, "sh"],
      ...[AGENT, "guard", "one", ...flags, "--", "sh", "-c", script],
    ],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
  });
  reap(child.pid);
  return child;
}

function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), "guard-escape-"));
  reapDir(dir);
  return join(dir, "pid");
}

async function startedIn(path: string): Promise<number> {
  const pid = await pidIn(path);
  reap(pid);
  return pid;
}

/** A process that does not hear SIGTERM and shows neither by group, environment nor parent whose it is. */
const escape = (path: string) =>
  `(env -i PATH="$PATH" setsid -f sh -c '
      trap "" TERM; echo $$ > ${path}.tmp; mv ${path}.tmp ${path}; while :; do sleep 0.05; done')
   sleep 1000`;

const asRoot = test.skipIf(process.getuid!() !== 0);

asRoot("a process that left all but the lock is ended by the watchdog alone", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const path = scratch();
  const guard = guardWithoutCgroup(alpha, escape(path));
  const pid = await startedIn(path);
  guard.kill("SIGKILL");
  await until("the watchdog ended it", () => !isRunning(pid), TTL_MS + 5_000);
  // The agent has the lock, too, and lives.
  const next = await runClient(alpha, ["guard", "one", "--wait", "10s", "--", "true"]);
  expect([next.status, next.stderr]).toEqual([0, ""]);
});

asRoot(
  "a process that left its group and its environment ends when the coordinator hangs",
  async () => {
    await using alpha = await fleet(server.url, TTL_MS)("alpha");
    const path = scratch();
    const guard = guardWithoutCgroup(alpha, escape(path));
    const pid = await startedIn(path);
    server.freeze();
    expect(await guard.exited).toBe(79);
    expect(isRunning(pid)).toBe(false);
    server.thaw();
  },
);

asRoot("a guard that ends leaves the commands alone with which it shared the lock", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const [mine, others] = [scratch(), scratch()];
  const write = (path: string) =>
    `trap "" TERM; echo $$ > ${path}.tmp; mv ${path}.tmp ${path}; 
    while :; do sleep 0.05; done`;
  const guard = guardWithoutCgroup(alpha, write(mine), ["--shared"]);
  const pid = await startedIn(mine);
  const other = guardWithoutCgroup(alpha, write(others), ["--shared"]);
  const theirs = await startedIn(others);
  guard.kill("SIGKILL");
  await until("the watchdog ended what it guarded", () => !isRunning(pid), TTL_MS + 5_000);
  // Long enough for its last look at all processes.
  await alpha.logged("renewed", {}, alpha.log().length);
  expect(isRunning(theirs)).toBe(true);
  other.kill("SIGKILL");
  await until("the other as well", () => !isRunning(theirs), TTL_MS + 5_000);
});

/** The two ways to find it: by its cgroup, where one can be made, and by the lock. */
const GUARDS = [
  ["its group, its environment and its parents", guardOne],
  [
    "all but the lock",
    (agent: RealAgent, [, , script]: readonly string[]) => guardWithoutCgroup(agent, script),
  ],
] as const;

test.skipIf(process.getuid!() !== 0).each(GUARDS)(
  "a process that left %s is ended by the agent alone",
  async (_what, guardIt) => {
    await using alpha = await fleet(server.url, TTL_MS)("alpha");
    const [path, command] = [scratch(), scratch()];
    const guard = guardIt(alpha, ["sh", "-c", `echo $$ > ${command}; ${escape(path)}`]);
    const pids = [await startedIn(command), await startedIn(path)];
    killTogether([guard.pid, watchdogOf(guard.pid, pids)]);
    await guard.exited;
    const killed = await alpha.logged("leftovers_killed");
    expect(killed.pids).toEqual(expect.arrayContaining(pids));
    expect(pids.filter(isRunning)).toEqual([]);
    expect((await runClient(alpha, ["guard", "one", "--wait", "10s", "--", "true"])).status).toBe(
      0,
    );
  },
);
