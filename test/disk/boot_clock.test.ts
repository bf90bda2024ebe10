import { expect, test } from "bun:test";
import { BootClock, SystemTimers } from "../../src/disk/boot_clock.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { child } from "../support/child.ts";

test("BootClock.bootMs() and wallMs() read the two clocks", () => {
  const clock = new BootClock();
  const [bootMs, wallMs] = [bootTimeMs(), Date.now()];
  expect(clock.bootMs() - bootMs).toBeGreaterThanOrEqual(0);
  expect(clock.wallMs()).toBeGreaterThanOrEqual(wallMs);
  expect(clock.wallMs() - clock.bootMs()).toBeGreaterThan(1e9); // booted after 1970
});

test("after() wakes once, in the order of the delays", async () => {
  const timers = new SystemTimers();
  const woken: number[] = [];
  await new Promise<void>((done) => {
    timers.after(30, () => (woken.push(30), done()));
    timers.after(1, () => woken.push(1));
    timers.after(15, () => woken.push(15));
    timers.after(-5, () => woken.push(-5));
  });
  expect(woken.toSorted((a, b) => a - b)).toEqual([-5, 1, 15, 30]);
  expect(woken.slice(2)).toEqual([15, 30]);
});

test("after() does not wake at once when the delay is longer than setTimeout takes, or no number", async () => {
  const timers = new SystemTimers();
  const woken: number[] = [];
  const cancel = [2 ** 31, 1e300, Infinity].map((ms) => timers.after(ms, () => woken.push(ms)));
  await new Promise<void>((done) => timers.after(NaN, done));
  await new Promise<void>((done) => timers.after(5, done));
  expect(woken).toEqual([]);
  for (const each of cancel) each();
});

test("after() does not wake when cancelled, also by another timer of the same moment", async () => {
  const timers = new SystemTimers();
  const woken: string[] = [];
  const cancels: (() => void)[] = [];
  for (const name of ["a", "b"]) {
    cancels.push(timers.after(5, () => {
      woken.push(name);
      for (const cancel of cancels) cancel();
    }));
  }
  await new Promise<void>((done) => timers.after(20, done));
  expect(woken).toEqual(["a"]);
});

test("after() wakes what is due by the boot clock soon after the machine was suspended", async () => {
  let suspendedMs = 0;
  const timers = new SystemTimers({
    bootMs: () => performance.now() + suspendedMs,
    monotonicMs: () => performance.now(),
  });
  const woken: string[] = [];
  const start = performance.now();
  const notDue = timers.after(7_200_000, () => woken.push("in two hours"));
  const due = new Promise<void>((done) => {
    timers.after(60_000, () => (woken.push("in a minute"), done()));
  });
  suspendedMs = 3_600_000;
  await due;
  expect(performance.now() - start).toBeLessThan(30_000); // not the minute that setTimeout would take
  expect(woken).toEqual(["in a minute"]);
  notDue();
});

test("after() keeps the process alive until it has woken, and no longer", async () => {
  const module = JSON.stringify(import.meta.resolve("../../src/disk/boot_clock.ts"));
  await using other = child([
    process.execPath,
    "-e",
    `import { SystemTimers } from ${module};
     const timers = new SystemTimers();
     timers.after(1e9, () => {})();
     timers.after(20, () => console.log("woken"));`,
  ]);
  expect(await other.line()).toBe("woken");
  expect(await other.ended()).toBe(0);
});
