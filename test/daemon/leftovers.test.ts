import { afterEach, expect, test } from "bun:test";
import { signOf } from "../../src/cli/guard/sweep.ts";
import type { Left } from "../../src/agent/types.ts";
import { Leftovers } from "../../src/daemon/leftovers.ts";
import type { Seen } from "../../src/daemon/seen.ts";
import { BootClock, SystemTimers } from "../../src/disk/boot_clock.ts";
import { lockHeirs } from "../../src/disk/lock_owners.ts";
import type { Clock, Timers } from "../../src/ports/clock.ts";
import { FakeTime } from "../support/fake_time.ts";
import { fenceOf, lockFiles, makeStore, mustLock } from "../support/lock_files.ts";
import { reap } from "../support/reaper.ts";
import { isRunning } from "../support/running.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

/** Grants that one outage takes. */
const MANY = 3_000;

/** The user of all grants here. */
const UID = 1_000;

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

interface Parts {
  readonly clock: Clock;
  readonly timers: Timers;
}

const realTime = (): Parts => ({ clock: new BootClock(), timers: new SystemTimers() });

/** Leftovers that see the processes `made` alone; clients with the tokens in `out` hold on. */
function setUp({ clock, timers }: Parts = realTime()) {
  const directory = tempDir();
  const locks = lockFiles(directory.path);
  const events: { event: string; [field: string]: unknown }[] = [];
  const out = new Set<string>();
  const made: Seen[] = [];
  const seen = { looks: 0 };
  const leftovers = new Leftovers({
    clock,
    timers,
    locks,
    log: { event: (_level, event, fields) => void events.push({ event, ...fields }) },
    isOut: (token) => out.has(token),
    processes: () => {
      seen.looks++;
      return made.filter(({ pid }) => isRunning(pid));
    },
    heirs: (paths) => lockHeirs(paths, process.pid),
  });
  closing.push(() => leftovers.close(), () => directory[Symbol.dispose]());
  const run = (what: Partial<Seen>, lockFd: "ignore" | number = "ignore"): number => {
    const { pid } = Bun.spawn(["sleep", "600"], { stdio: ["ignore", "ignore", "ignore", lockFd] });
    reap(pid);
    closing.push(() => isRunning(pid) && process.kill(pid, "SIGKILL"));
    const startTime = made.length;
    const nothing = {
      parent: 1,
      group: pid,
      marks: [],
      signs: [],
      token: null,
      uid: UID,
      groups: [],
    };
    made.push({ ...nothing, ...what, pid, startTime });
    return pid;
  };
  /** A process that counts as told this token, under the guard of this mark. */
  const runUnder = (token: string, mark: string, uid = UID) =>
    run({ token, marks: [mark], signs: [signOf(token)], uid });
  /** A process that has nothing of a grant but its lock, which was granted to `pid`. */
  const runLocked = (store: string, pid: number, what: Partial<Seen> = {}): number => {
    makeStore(locks, store);
    const lock = mustLock(locks, store);
    lock.writeFence({ ...fenceOf(store, 7), pid });
    const heir = run(what, lock.fd);
    lock.close();
    return heir;
  };
  return { leftovers, locks, events, out, seen, run, runUnder, runLocked };
}

/** A grant that was lost, or whose client went. */
function leftOf(left: Pick<Left, "store" | "token" | "untilMs" | "gone">): Left {
  return { ...left, uid: UID, pid: process.pid, shared: false };
}

/** Lost grants of an outage, whose deadlines come within 10 ms. */
function lostAt(nowMs: number): Left[] {
  return Array.from({ length: MANY }, (_, i) => (
    leftOf({ store: `s${i}`, token: `t${i}`, untilMs: nowMs + 10 * i / MANY, gone: false })
  ));
}

test("expect() looks for no process when all clients of an outage let go in time", () => {
  const time = new FakeTime();
  const { leftovers, out, seen, events } = setUp({ clock: time, timers: time });
  const untilMs = time.bootMs() + 5_000;
  for (const left of lostAt(untilMs)) {
    out.add(left.token);
    leftovers.expect(left);
  }
  // They let go a moment after their deadlines.
  time.after(5_050, () => out.clear());
  while (time.step());
  expect(time.bootMs()).toBeGreaterThan(untilMs + 200);
  expect(seen.looks).toBe(0);
  expect(events).toEqual([]);
});

test("expect() looks at all processes together for all clients of an outage that hold on", async () => {
  const { leftovers, out, seen, events, runUnder } = setUp();
  const alive = [["t7", "a"], ["t8", "b"], ["t2999", "c"]].map(([token, mark]) =>
    runUnder(token, mark)
  );
  const other = runUnder("another", "d");
  for (const left of lostAt(new BootClock().bootMs())) {
    out.add(left.token);
    leftovers.expect(left);
  }
  await until("all three are told of", () => events.length === alive.length);
  expect(
    events.map(({ event, store, pids }) => ({ event, store, pids })).toSorted((a, b) =>
      Number(a.pids) - Number(b.pids)
    ),
  ).toEqual(
    ["s7", "s8", "s2999"].map((store, i) => ({
      event: "leftovers_killed",
      store,
      pids: [alive[i]],
    })),
  );
  expect(alive.filter(isRunning)).toEqual([]);
  expect(isRunning(other)).toBe(true);
  // One a token would be thousands. On a busy machine those that were killed take a few looks to end.
  expect(seen.looks).toBeLessThan(MANY / 20);
});

test("expect() does nothing before the deadline, however the client goes", () => {
  const time = new FakeTime();
  const { leftovers, out, seen } = setUp({ clock: time, timers: time });
  out.add("t").add("u");
  leftovers.expect(leftOf({ store: "s", token: "t", untilMs: 4_000, gone: false }));
  leftovers.expect(leftOf({ store: "s", token: "u", untilMs: 9_000, gone: true }));
  while (seen.looks === 0 && time.step());
  expect(time.bootMs()).toBeGreaterThanOrEqual(4_000);
  expect(time.bootMs()).toBeLessThan(9_000);
  while (seen.looks === 1 && time.step());
  expect(time.bootMs()).toBeGreaterThanOrEqual(9_000);
});

test("expect() leaves another user's processes alone, though the grant's user claims their mark", async () => {
  const { leftovers, out, events, runUnder } = setUp();
  const forger = runUnder("t", "victim's");
  const victim = runUnder("another", "victim's", UID + 1);
  const untilMs = new BootClock().bootMs();
  out.add("t");
  leftovers.expect(leftOf({ store: "s", token: "t", untilMs, gone: false }));
  await until("the forger is told of", () => events.length > 0);
  expect([isRunning(forger), isRunning(victim)]).toEqual([false, true]);
  expect(events).toMatchObject([{ event: "leftovers_killed", pids: [forger] }]);
});

test("expect() names what runs under the guard as another user, and does not end it", async () => {
  const { leftovers, out, events, runUnder } = setUp();
  const own = runUnder("t", "a");
  const asRoot = runUnder("t", "a", 0);
  out.add("t");
  const untilMs = new BootClock().bootMs();
  leftovers.expect(leftOf({ store: "s", token: "t", untilMs, gone: false }));
  await until("both are told of", () => events.length > 1);
  expect([isRunning(own), isRunning(asRoot)]).toEqual([false, true]);
  expect(events).toMatchObject([
    { event: "leftovers_killed", pids: [own] },
    { event: "leftovers_alive", pids: [asRoot] },
  ]);
});

test("expect() looks whether the lock is free, once a client that lost its grant is gone", async () => {
  const { leftovers, locks, out, seen, events, runUnder } = setUp();
  makeStore(locks, "s");
  makeStore(locks, "held");
  const lock = mustLock(locks, "held");
  const [left, right] = [runUnder("t", "a"), runUnder("u", "b")];
  const untilMs = new BootClock().bootMs();
  out.add("t").add("u");
  for (const [store, token] of [["s", "t"], ["held", "u"]]) {
    leftovers.expect(leftOf({ store, token, untilMs, gone: false }));
    leftovers.expect(leftOf({ store, token, untilMs, gone: true }));
  }
  await until("the one with the lock is told of", () => events.length > 0);
  lock.close();
  expect([isRunning(left), isRunning(right)]).toEqual([true, false]);
  expect(events).toMatchObject([{ event: "leftovers_killed", store: "held", pids: [right] }]);
  expect(seen.looks).toBeGreaterThan(0);
});

test("expect() ends what has nothing but the lock of a gone guard, once all that carries its mark is", async () => {
  const { leftovers, events, runUnder, runLocked } = setUp();
  const pids = [runUnder("t", "a"), runLocked("s", process.pid)];
  const untilMs = new BootClock().bootMs();
  leftovers.expect(leftOf({ store: "s", token: "t", untilMs, gone: true }));
  await until("both are told of", () => events.length > 0);
  expect(pids.filter(isRunning)).toEqual([]);
  expect(events).toMatchObject([{ event: "leftovers_killed", store: "s", pids }]);
});

const NOT_OURS: [whose: string, left: Partial<Left>, what: Partial<Seen>][] = [
  ["is another user's", {}, { uid: UID + 1 }],
  ["was left by no guard", { token: "no guard's" }, {}],
];

test.each(NOT_OURS)(
  "expect() only names what has the lock of a gone client when it %s",
  async (_whose, left, what) => {
    const { leftovers, events, runUnder, runLocked } = setUp();
    runUnder("t", "a");
    const heir = runLocked("s", process.pid, what);
    const untilMs = new BootClock().bootMs();
    leftovers.expect({ ...leftOf({ store: "s", token: "t", untilMs, gone: true }), ...left });
    const alive = () => events.find(({ event }) => event === "leftovers_alive");
    await until("it is named", alive);
    expect(alive()).toMatchObject({ store: "s", pids: [heir] });
    expect(isRunning(heir)).toBe(true);
  },
);

const NOT_ITS: [why: string, left: Partial<Left>][] = [
  ["the lock was granted to another since", { pid: process.pid + 1 }],
  ["others shared the lock", { shared: true }],
  ["the client is there", { gone: false }],
];

test.each(NOT_ITS)("expect() leaves alone what has the lock when %s", async (_why, left) => {
  const { leftovers, out, events, runUnder, runLocked } = setUp();
  const heir = runLocked("s", process.pid);
  const carrier = runUnder("t", "a");
  const untilMs = new BootClock().bootMs();
  out.add("t");
  leftovers.expect({ ...leftOf({ store: "s", token: "t", untilMs, gone: true }), ...left });
  await until("the carrier is told of", () => events.length > 0);
  expect(events).toMatchObject([{ event: "leftovers_killed", pids: [carrier] }]);
  expect(events).toHaveLength(1);
  expect(isRunning(heir)).toBe(true);
});

test("expect() leaves alone what has the lock that the agent has as well, for the same client's next grant", async () => {
  const { leftovers, locks, events, run, runUnder } = setUp();
  makeStore(locks, "s");
  const lock = mustLock(locks, "s");
  closing.push(() => lock.close());
  lock.writeFence(fenceOf("s", 7));
  const [carrier, next] = [runUnder("t", "a"), run({}, lock.fd)];
  const untilMs = new BootClock().bootMs();
  leftovers.expect(leftOf({ store: "s", token: "t", untilMs, gone: true }));
  await until("the carrier is told of", () => events.length > 0);
  expect(events).toMatchObject([{ event: "leftovers_killed", pids: [carrier] }]);
  expect(isRunning(next)).toBe(true);
});
