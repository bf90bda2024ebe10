import { expect, test } from "bun:test";
import { forEach, Slices } from "../../src/agent/slices.ts";
import { FakeTime } from "../support/fake_time.ts";

/** Time of which work uses some up. */
class BusyTime extends FakeTime {
  usedMs = 0;

  override bootMs(): number {
    return super.bootMs() + this.usedMs;
  }
}

const many = Array.from({ length: 1_000 }, (_, i) => i);

test("do() does little work at once", () => {
  const time = new BusyTime();
  const slices = new Slices({ clock: time, timers: time }, { lateMs: () => 0 });
  const seen: number[] = [];
  slices.do(forEach(many, (i) => seen.push(i) > 0));
  expect(seen).toEqual(many);
  expect(time.pending).toBe(0);
});

test("do() gives everybody else a turn every few milliseconds, and forgets nothing", () => {
  const time = new BusyTime();
  const slices = new Slices({ clock: time, timers: time }, { lateMs: () => 0 });
  const seen: number[] = [];
  const slow = (i: number) => {
    time.usedMs += 0.1;
    return seen.push(i) > 0;
  };
  slices.do(forEach(many, slow));
  for (let beforeMs = 0; time.pending > 0; beforeMs = time.usedMs) {
    expect(time.usedMs - beforeMs).toBeLessThan(5);
    time.step();
  }
  expect(seen).toEqual(many);
});

test("do() does not have little work wait for much, nor add up to more at a time", () => {
  const time = new BusyTime();
  const slices = new Slices({ clock: time, timers: time }, { lateMs: () => 0 });
  const done: string[] = [];
  for (const [name, count] of [["much", 1_000], ["little", 1]] as const) {
    let left: number = count;
    slices.do(forEach(many.slice(0, count), () => {
      time.usedMs += 0.1;
      if (--left === 0) done.push(name);
      return true;
    }));
  }
  expect(time.usedMs).toBeLessThan(5);
  while (time.step());
  expect(done).toEqual(["little", "much"]);
});

test("do() stands back while renewals are late", () => {
  const time = new BusyTime();
  const slices = new Slices({ clock: time, timers: time }, { lateMs: () => 1_000 });
  slices.do(forEach(many, () => (time.usedMs += 0.1) > 0));
  expect(time.delaysMs).toEqual([20]);
});

test("do() stops where the work says that it is of no use any more", () => {
  const time = new BusyTime();
  const slices = new Slices({ clock: time, timers: time }, { lateMs: () => 0 });
  const seen: number[] = [];
  slices.do(forEach(many, (i) => seen.push(i) < 5));
  expect(seen).toEqual([0, 1, 2, 3, 4]);
});
