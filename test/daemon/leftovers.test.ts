import { afterEach, expect, test } from "bun:test";
import type { Left } from "../../src/agent/types.ts";
import { Leftovers } from "../../src/daemon/leftovers.ts";
import type { Seen } from "../../src/daemon/seen.ts";
import { BootClock, SystemTimers } from "../../src/disk/boot_clock.ts";
import { lockHeirs } from "../../src/disk/lock_owners.ts";
import type { Clock, Timers } from "../../src/ports/clock.ts";
import { FakeTime } from "../support/fake_time.ts";
import { lockFiles, makeStore, mustLock } from "../support/lock_files.ts";
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
  /** A process that counts as told this token, under the guard of this mark. */
  const runUnder = (token: string, mark: string, uid = UID): number => {
    const { pid } = Bun.spawn(["sleep", "600"]);
    reap(pid);
    closing.push(() => isRunning(pid) && process.kill(pid, "SIGKILL"));
    const startTime = made.length;
    made.push({ pid, parent: 1, group: pid, startTime, marks: [mark], token, uid, groups: [] });
    return pid;
  };
  return { leftovers, locks, events, out, seen, runUnder };
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
