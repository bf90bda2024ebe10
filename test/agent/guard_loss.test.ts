/**
 * `agent guard` on real agents: what it runs ends with the lease, in time, all of it.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { tmpdir } from "node:os";
import { cgroupProblem } from "../../src/sys/cgroup.ts";
import { again, fleet, guardOne, notificationsOf, SharedLog } from "../support/fleet.ts";
import { faultsOf } from "../support/kill_storm.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, refusal, runClient } from "../support/real_agent.ts";
import { reapDir } from "../support/reaper.ts";
import { isRunning } from "../support/running.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 3_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), "guard-loss-"));
  reapDir(dir);
  return dir;
}

async function pidsIn(path: string): Promise<number[]> {
  await until("its processes are known", () => existsSync(path));
  return readFileSync(path, "utf8").trim().split(/\s+/).map(Number);
}

/** A tree that does not hear SIGTERM: the command, a child, a grandchild, one that left the group. */
const TREE = `
trap '' TERM
sh -c 'trap "" TERM; sleep 1000 & echo $! > $0.grandchild; wait' "$1" & child=$!
setsid sh -c 'trap "" TERM; sleep 1000' & left=$!
while [ ! -e "$1.grandchild" ]; do sleep 0.01; done
echo $$ $child $left $(cat "$1.grandchild") > "$1.tmp"; mv "$1.tmp" "$1.pids"; wait`;

test("a partitioned holder's whole tree is dead before the next holder's first grant (consul#2022, consul#9788, consul#1843)", async () => {
  const start = fleet(server.url, TTL_MS);
  const log = new SharedLog();
  await using alpha = await start("alpha");
  await using beta = await start("beta", { flags: ["--grace", "0s"] });
  const dir = scratch();
  const tree = guardOne(alpha, ["sh", "-c", TREE, "sh", join(dir, "tree")], {
    flags: ["--shared"],
  });
  const pids = await pidsIn(join(dir, "tree.pids"));
  expect(pids.filter(isRunning)).toHaveLength(4);
  const writer = log.writeStubbornly(alpha, 10_000, ["--shared"]);
  await log.writtenBy("alpha");
  const next = guardOne(beta, [
    "sh",
    "-c",
    // One that ended but was not reaped by its new parent runs no more.
    `for pid; do state=$(ps -o stat= -p "$pid"); case $state in Z* | '') ;; *)
      echo "$pid runs: $state" ;; esac; done`,
    "sh",
    ...pids.map(String),
  ], { flags: ["--wait-lease", "--wait", "30s"] });
  await beta.logged("foreign");
  // Nothing of the agent's reaches the coordinator or its clients any more.
  alpha.signal("SIGSTOP");
  // Without any grace: the deadline alone has to be in time.
  expect(await next.exited).toBe(0);
  expect(await next.stdout).toBe("");
  const after = log.write(beta, 5);
  expect(await after.exited).toBe(0);
  expect(faultsOf(log.text)).toEqual([]);
  alpha.signal("SIGCONT");
  expect(await tree.exited).toBe(79);
  expect(await writer.exited).toBe(79);
  expect(pids.filter(isRunning)).toEqual([]);
});

test.skipIf(cgroupProblem() !== null)(
  "a process that left its group and its environment is caught by the cgroup",
  async () => {
    const start = fleet(server.url, TTL_MS);
    await using alpha = await start("alpha");
    const path = join(scratch(), "pids");
    // Its parent is gone, too: nothing but the cgroup shows where it came from.
    const escape = `(setsid env -i /bin/sleep 1000 & echo $! > ${path}.tmp)
      mv ${path}.tmp ${path}; sleep 1000`;
    const guard = guardOne(alpha, ["sh", "-c", escape]);
    const [pid] = await pidsIn(path);
    await until("it has left", () => isRunning(pid!));
    guard.kill("SIGKILL");
    await guard.exited;
    await until("the watchdog ended it", () => !isRunning(pid!), TTL_MS + 5_000);
    const next = await runClient(alpha, ["guard", "one", "--wait", "10s", "--", "true"]);
    expect(next.status).toBe(0);
  },
);

test("status says whether a guard can have a cgroup", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const { checks } = await (await alpha.client()).call("status", {});
  const check = checks.find(({ name }) => name === "guard_cgroup");
  expect(check?.ok).toBe(true);
  expect(check?.message).toMatch(cgroupProblem() === null ? /^available/ : /^not available/);
});

test("a guard killed by SIGKILL: its command dies by the deadline, and keeps the lock until then", async () => {
  const start = fleet(server.url, TTL_MS);
  await using alpha = await start("alpha");
  const path = join(scratch(), "tree");
  const guard = guardOne(alpha, ["sh", "-c", TREE, "sh", path]);
  const pids = await pidsIn(`${path}.pids`);
  guard.kill("SIGKILL");
  await guard.exited;
  // The turn is free, the lock is not: whoever asks is told who has it, by number and name.
  const busy = await runClient(alpha, ["guard", "one", "--", "true"]);
  expect(busy.status).toBe(75);
  expect(busy.stderr).toMatch(/locked by process \d+ \((sh|sleep) /);
  const next = await runClient(alpha, ["guard", "one", "--wait", "30s", "--", "true"]);
  expect([next.status, next.stderr]).toEqual([0, ""]);
  expect(pids.filter(isRunning)).toEqual([]);
});

test("a daemonised child keeps the lock, visibly: busy names its number and command (ceph-qa-suite#583)", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const script = "setsid sleep 12345 > /dev/null 2>&1 & echo $!; exit 4";
  const first = await runClient(alpha, ["guard", "one", "--", "sh", "-c", script]);
  expect(first.status).toBe(4);
  const pid = Number(first.stdout);
  const busy = await runClient(alpha, ["guard", "one", "--", "true"]);
  expect(busy.status).toBe(75);
  expect(busy.stderr).toContain(`locked by process ${pid} (sleep 12345)`);
  process.kill(pid, "SIGKILL");
  expect((await runClient(alpha, ["guard", "one", "--wait", "10s", "--", "true"])).status).toBe(0);
});

test("a guarded command's exit status is its own, signals as 128+n (consul#947, consul#3526)", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  for (const status of [0, 1, 2, 64, 69, 75, 79, 126, 127, 128, 137, 255]) {
    const run = await runClient(alpha, ["guard", "one", "--", "sh", "-c", `exit ${status}`]);
    expect([run.status, run.stderr]).toEqual([status, ""]);
  }
  for (const [signal, number] of [["TERM", 15], ["KILL", 9], ["INT", 2], ["SEGV", 11]] as const) {
    const run = await runClient(alpha, ["guard", "one", "--", "sh", "-c", `kill -${signal} $$`]);
    expect(run.status).toBe(128 + number);
  }
});

test("a paused holder's token is dead when it wakes: verify refuses, the command was ended (etcd#10811, etcd#11457)", async () => {
  const start = fleet(server.url, TTL_MS);
  await using alpha = await start("alpha");
  await using beta = await start("beta");
  const client = await alpha.client();
  const { token } = await client.call("guard", { store: "one", shared: true });
  const seen = notificationsOf(client);
  const guard = guardOne(alpha, ["sleep", "1000"], { flags: ["--shared"] });
  await until("two grants", async () => (await client.call("status", {})).counts.grants === 2);
  alpha.signal("SIGSTOP");
  const betas = await beta.client();
  await betas.call("guard", { store: "one", wait_ms: 30_000, wait_lease: true });
  expect(await guard.exited).toBe(79);
  alpha.signal("SIGCONT");
  const { kind } = await refusal(client.call("verify", { token, store: "one" }));
  expect(kind).toBe("lost");
  await until("it was told", () => seen.some(({ method }) => method === "lost"));
  expect((await client.call("held", { store: "one" })).held).toBe(false);
});

test("the command line's exit statuses are those of the contract (etcd#19261)", async () => {
  const start = fleet(server.url, TTL_MS);
  await using alpha = await start("alpha", { flags: ["--drain", "1s"] });
  await using beta = await start("beta");
  const status = async (...args: string[]) => (await runClient(alpha, args)).status;
  const guarded = (script: string) => status("guard", "one", "--", "sh", "-c", script);
  expect(await guarded(`${AGENT} verify`)).toBe(0);
  expect(await status("held", "one")).toBe(0);
  expect(await status("--check")).toBe(0);
  expect((await runClient(beta, ["guard", "one", "--", "true"])).status).toBe(75);
  expect((await runClient(beta, ["held", "one"])).status).toBe(1);
  expect(await status("guard", "no-such-store", "--", "true")).toBe(66);
  expect(await status("guard", "../x", "--", "true")).toBe(64);
  expect(await status("verify", "one")).toBe(77);
  // An expired lease is no success, whatever the command itself says: it is ended, and 79 told.
  const from = alpha.log().length;
  const expired = guardOne(alpha, ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.02; done"]);
  await alpha.logged("granted", {}, from);
  alpha.signal("SIGSTOP");
  expect(await expired.exited).toBe(79);
  alpha.signal("SIGCONT");
  await alpha.end("SIGKILL");
  expect(await status("held", "one")).toBe(69);
  expect(await status("--check")).toBe(69);
  expect(await status("guard", "one", "--", "true")).toBe(69);
});

test("expiry and grace take what they are documented to take, a grace of 0 included (consul#1172, consul#4508)", async () => {
  const measure = async (graceMs: number) => {
    const start = fleet(server.url, TTL_MS);
    const flags = ["--grace", `${graceMs}ms`];
    await using alpha = await start("alpha", { flags });
    await using beta = await start("beta", { flags });
    await (await alpha.client()).call("guard", { store: "one" });
    const waiting = (await beta.client()).call("guard", {
      store: "one",
      wait_ms: 30_000,
      wait_lease: true,
    });
    await beta.logged("foreign");
    const from = alpha.log().length;
    await alpha.logged("renewed", {}, from);
    const renewals = alpha.log().filter(({ event }) => event === "renewed");
    await alpha.end("SIGKILL");
    const lastRenewal = Date.parse(renewals.at(-1)!.time);
    await waiting;
    const at = async (event: string) => Date.parse((await beta.logged(event)).time);
    return {
      takenMs: await at("acquired") - lastRenewal,
      graceMs: await at("granted") - await at("acquired"),
    };
  };
  const [whole, none] = await Promise.all([measure(TTL_MS), measure(0)]);
  for (const { takenMs } of [whole, none]) {
    // Sent a little before it was logged; one more may have landed before the kill.
    expect(takenMs).toBeGreaterThan(TTL_MS - 300);
    expect(takenMs).toBeLessThan(2 * TTL_MS);
  }
  expect(whole.graceMs).toBeGreaterThanOrEqual(TTL_MS - 50);
  expect(whole.graceMs).toBeLessThan(TTL_MS + 1_500);
  expect(none.graceMs).toBeLessThan(1_500);
});

test("the watchdog of a killed guard leaves the next guard and the next agent alone", async () => {
  const start = fleet(server.url, TTL_MS);
  await using first = await start("alpha");
  const path = join(scratch(), "pid");
  const guard = guardOne(first, [
    "sh",
    "-c",
    `echo $$ > ${path}.tmp; mv ${path}.tmp ${path}; sleep 1000`,
  ]);
  const [pid] = await pidsIn(path);
  guard.kill("SIGKILL");
  await guard.exited;
  await first.end("SIGKILL");
  // The command ends long before its deadline, and others have its store and its lock file by then.
  process.kill(pid!, "SIGKILL");
  await using second = await start("alpha", again(first));
  const client = await second.client();
  const next = guardOne(second, ["sleep", String((2 * TTL_MS) / 1_000)], {
    flags: ["--wait", "10s"],
  });
  expect(await next.exited).toBe(0);
  expect((await client.call("status", {})).pid).toBe(second.pid);
  const { token } = await client.call("guard", { store: "one" });
  await client.call("release", { token });
});
