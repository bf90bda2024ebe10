/** What becomes of guarded processes when their lease ends. All with real processes and flocks. */
import { expect, test } from "bun:test";
import { existsSync, openSync, readFileSync } from "node:fs";
import { bootTimeMs } from "../../../src/sys/boot_time.ts";
import { processStartTime } from "../../../src/sys/proc.ts";
import { tryFlock } from "../../../src/sys/flock.ts";
import { AGENT, FakeAgent, finish, until, untilLine } from "../../support/agent_under_test.ts";
import { freezeProcess } from "../../support/freeze.ts";
import { isRunning } from "../../support/running.ts";

const TTL_MS = 1_500;
/** SIGKILL is sent at the deadline; a busy machine may take this long to carry it out. */
const SLACK_MS = 1_000;

/**
 * Starts a tree that ignores SIGTERM: a shell, a child of it, and one that left the group. They write
 * their numbers to `pids`, and run for longer than any test.
 */
const STUBBORN = `trap '' TERM
sh -c 'trap "" TERM; sleep 100' &
child=$!
setsid sh -c 'trap "" TERM; sleep 100' &
echo $$ $child $! > pids.tmp && mv pids.tmp pids
wait`;

async function pidsOf(agent: FakeAgent): Promise<number[]> {
  return (await untilLine(agent.path("pids"))).split(" ").map(Number);
}

/** A child of the wrapper that is none of `others`; null while there is none. */
function watchdogOf(wrapper: number, others: readonly number[]): number | null {
  const children = readFileSync(`/proc/${wrapper}/task/${wrapper}/children`, "latin1");
  return children.split(" ").map(Number).find((pid) => pid > 0 && !others.includes(pid)) ?? null;
}

/** Waits until none of them runs any more, and tells when that was. */
async function untilAllEnded(pids: readonly number[]): Promise<number> {
  await until(() => !pids.some(isRunning));
  return bootTimeMs();
}

test("guard() ends the whole group by the deadline when the agent dies (consul#2022, consul#9788)", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", STUBBORN]);
  const pids = await pidsOf(agent);
  expect(pids.filter(isRunning)).toEqual(pids);
  await agent.kill();
  const latestDeadlineMs = bootTimeMs() + TTL_MS;
  const result = await finish(child);
  expect(result.exit).toBe(79);
  expect(pids.filter(isRunning)).toEqual([]);
  expect(bootTimeMs()).toBeLessThan(latestDeadlineMs + SLACK_MS);
  expect(result.stderr).toContain("the agent is gone");
  expect(result.stderr).toContain(
    "sh was ended, because the lease on store was about to run out (the agent is gone)",
  );
});

test("guard() asks first: SIGTERM at deadline - kill-after, and exit 79 whatever the command says", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  await agent.order({ renew: false });
  const startMs = bootTimeMs();
  const script = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
  const result = await agent.guard(script, ["--kill-after", "700ms"]);
  const tookMs = bootTimeMs() - startMs;
  expect(result).toMatchObject({ exit: 79, stdout: "ready\nasked\n" });
  expect(tookMs).toBeGreaterThan(TTL_MS - 700 - 1);
  expect(tookMs).toBeLessThan(TTL_MS + SLACK_MS);
});

test("guard() lets a command run on while the lease is renewed", async () => {
  await using agent = await FakeAgent.start(600);
  expect(await agent.guard("sleep 2; exit 5")).toMatchObject({ exit: 5, stderr: "" });
});

test("guard() ends the command at once on a conflict, by force after kill-after", async () => {
  await using agent = await FakeAgent.start(60_000);
  const child = agent.spawn(
    ["guard", "store", "--kill-after", "300ms", "--", "sh", "-c", STUBBORN],
  );
  const pids = await pidsOf(agent);
  const lostMs = bootTimeMs();
  await agent.order({ lose: { kind: "lost", message: "node-2 took the lease on store" } });
  const result = await finish(child);
  const tookMs = bootTimeMs() - lostMs;
  expect(result.exit).toBe(79);
  expect(result.stderr).toContain("node-2 took the lease on store");
  expect(pids.filter(isRunning)).toEqual([]);
  expect(tookMs).toBeGreaterThan(299);
  expect(tookMs).toBeLessThan(300 + SLACK_MS);
});

test("guard() continues a stopped command so that it can end itself", async () => {
  await using agent = await FakeAgent.start(60_000);
  const script = "trap 'echo ended; exit 0' TERM; echo $$ > pids; kill -STOP $$; sleep 100";
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", script]);
  const [pid] = await pidsOf(agent);
  await until(() => /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, "utf8")));
  await agent.order({ lose: { kind: "lost", message: "gone" } });
  expect(await finish(child)).toMatchObject({ exit: 79, stdout: "ended\n" });
});

test("guard() ends a process that left the group, cleared its environment and lost its parents", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  const daemon = `trap "" TERM; echo $$ > pids; exec sleep 100`;
  const script = `(env -i PATH="$PATH" setsid sh -c '${daemon}' &) ; exec sleep 100`;
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", script]);
  const [pid] = await pidsOf(agent);
  await agent.kill();
  expect((await finish(child)).exit).toBe(79);
  expect(isRunning(pid!)).toBe(false);
});

test("guard() ends a process whose main thread has ended, but not the others", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  // It looks like one that has ended: its state is Z.
  const python = `import ctypes, os, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=[100]).start()
open("pids", "w").write(f"{os.getpid()}\\n")
ctypes.CDLL(None).pthread_exit(None)`;
  const child = agent.spawn(
    ["guard", "store", "--", "sh", "-c", `setsid -f python3 -c '${python}'; exec sleep 100`],
  );
  const [pid] = await pidsOf(agent);
  await until(() => !isRunning(pid!));
  expect(processStartTime(pid!)).not.toBeNull();
  await agent.kill();
  expect((await finish(child)).exit).toBe(79);
  expect(processStartTime(pid!)).toBeNull();
});

test("guard() reaps the orphans that it adopts", async () => {
  await using agent = await FakeAgent.start(60_000);
  const script = `for i in 1 2 3 4 5; do (sh -c 'sleep 0.05' &); done; sleep 0.4
ps -o stat= --ppid $PPID | grep -c Z`;
  expect((await agent.guard(script)).stdout).toBe("0\n");
});

test("guard() killed by SIGKILL: the lock stays with the command, which ends by the deadline (SPEC 3, 5)", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", STUBBORN]);
  const pids = await pidsOf(agent);
  child.kill("SIGKILL");
  await child.exited;
  const latestDeadlineMs = bootTimeMs() + TTL_MS;
  const lock = openSync(agent.path("store.lock"), "r+");
  // Tried without a pause until the last of them is gone: it must never be free before.
  while (pids.some(isRunning)) {
    const locked = tryFlock(lock);
    expect(locked && pids.some(isRunning)).toBe(false);
    await Bun.sleep(5);
  }
  expect(await untilAllEnded(pids)).toBeLessThan(latestDeadlineMs + SLACK_MS);
  await until(() => tryFlock(lock));
});

test("guard() killed as it starts the command: the watchdog ends what shows only later", async () => {
  const mark = "0123456789abcdef";
  const hold = { deadlineMs: bootTimeMs() + 3_000, killAfterMs: 500, endingSinceMs: null };
  const place = { group: null, cgroup: null, lock: null, grant: null };
  const state = { mark, hold, ...place, done: false, question: 0 };
  // Its input is at its end, as when the wrapper is killed.
  const watchdog = Bun.spawn([AGENT, "guard-watchdog"], {
    env: { ZIT_WATCHDOG_STATE: JSON.stringify(state) },
    stdin: "ignore",
    stdout: "ignore",
  });
  // By now it has looked, and seen nobody.
  await Bun.sleep(1_000);
  const command = Bun.spawn(["sleep", "100"], { env: { ...process.env, ZIT_LEASE_GUARDS: mark } });
  expect(await command.exited).toBe(143);
  expect(bootTimeMs()).toBeLessThan(hold.deadlineMs + SLACK_MS);
  expect(await watchdog.exited).toBe(0);
});

test("guard() and agent killed by SIGKILL: the watchdog alone ends the command", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", STUBBORN]);
  const pids = await pidsOf(agent);
  await agent.kill();
  child.kill("SIGKILL");
  const latestDeadlineMs = bootTimeMs() + TTL_MS;
  expect(await untilAllEnded(pids)).toBeLessThan(latestDeadlineMs + SLACK_MS);
});

test("guard() stopped with its agent gone: the watchdog ends the command, the status is 79", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", STUBBORN]);
  const pids = await pidsOf(agent);
  freezeProcess(child.pid);
  await agent.kill();
  await untilAllEnded(pids);
  process.kill(child.pid, "SIGCONT");
  expect((await finish(child)).exit).toBe(79);
});

test("guard() stopped while the agent renews: the command lives on", async () => {
  await using agent = await FakeAgent.start(900);
  const script = "echo $$ > pids; while [ ! -e finish ]; do sleep 0.02; done; exit 3";
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", script]);
  const [pid] = await pidsOf(agent);
  freezeProcess(child.pid);
  // Longer than the lease: only by asking the agent can the watchdog know that it goes on.
  await Bun.sleep(2_500);
  expect(isRunning(pid!)).toBe(true);
  await agent.kill();
  await untilAllEnded([pid!]);
});

test("guard() nested: what the inner guard runs does not outlive the outer lease", async () => {
  await using outer = await FakeAgent.start(TTL_MS);
  await using inner = await FakeAgent.start(60_000);
  const nested = ["guard", "inner", "--socket", inner.socket, "--", "sh", "-c", STUBBORN];
  const child = outer.spawn(["guard", "outer", "--", AGENT, ...nested]);
  const pids = await pidsOf(outer);
  await outer.kill();
  const latestDeadlineMs = bootTimeMs() + TTL_MS;
  expect((await finish(child)).exit).toBe(79);
  expect(pids.filter(isRunning)).toEqual([]);
  expect(bootTimeMs()).toBeLessThan(latestDeadlineMs + SLACK_MS);
});

test("guard() leaves a process that outlives the command with the lock (ceph-qa-suite#583)", async () => {
  await using agent = await FakeAgent.start(60_000);
  const result = await agent.guard("sleep 100 > out 2>&1 < /dev/null & echo $! > pids; exit 4");
  expect(result).toMatchObject({ exit: 4, stderr: "" });
  const [pid] = await pidsOf(agent);
  expect(isRunning(pid!)).toBe(true);
  const lock = openSync(agent.path("store.lock"), "r+");
  expect(tryFlock(lock)).toBe(false);
  process.kill(pid!, "SIGKILL");
  await until(() => tryFlock(lock));
});

test("guard() frees the store before it exits, so that the next guard gets it at once", async () => {
  await using agent = await FakeAgent.start(60_000);
  for (let i = 0; i < 10; i++) expect((await agent.guard("true")).exit).toBe(0);
});

test("guard() reports 79 when the release finds the lease lost (etcd#19261, jedis-lock#2)", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  await agent.order({ renew: false });
  const script = `trap '' TERM; sleep ${(TTL_MS + 200) / 1_000}`;
  const result = await agent.guard(`exec sh -c "${script}"`);
  expect(result.exit).toBe(79);
  expect(existsSync(agent.path("store.lock"))).toBe(true);
});

test("guard() ends the command by the deadline when the agent hangs (kubernetes#65094)", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", STUBBORN]);
  const pids = await pidsOf(agent);
  agent.freeze();
  const latestDeadlineMs = bootTimeMs() + TTL_MS;
  await untilAllEnded(pids);
  expect(bootTimeMs()).toBeLessThan(latestDeadlineMs + SLACK_MS);
  expect((await finish(child)).exit).toBe(79);
});

test("guard() starts another watchdog when one dies", async () => {
  await using agent = await FakeAgent.start(TTL_MS);
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", STUBBORN]);
  const pids = await pidsOf(agent);
  const first = await until(() => watchdogOf(child.pid, pids));
  process.kill(first, "SIGKILL");
  await until(() => watchdogOf(child.pid, [...pids, first]));
  child.kill("SIGKILL");
  const latestDeadlineMs = bootTimeMs() + TTL_MS;
  expect(await untilAllEnded(pids)).toBeLessThan(latestDeadlineMs + SLACK_MS);
});

test("guard() leaves no watchdog behind", async () => {
  await using agent = await FakeAgent.start(60_000);
  await agent.guard("ps -o pid= --ppid $PPID > dogs");
  const dogs = readFileSync(agent.path("dogs"), "utf8").trim().split("\n").map(Number);
  expect(dogs.length).toBe(2); // the shell and the watchdog
  await until(() => !dogs.some(isRunning));
});
