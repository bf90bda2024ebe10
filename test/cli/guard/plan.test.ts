import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  ending,
  endTimeMs,
  killAfterMs,
  killTimeMs,
  mayRun,
  renewed,
} from "../../../src/cli/guard/plan.ts";
import type { Hold } from "../../../src/cli/guard/plan.ts";

const HOLD: Hold = { deadlineMs: 10_000, killAfterMs: 3_000, endingSinceMs: null };

test("a command is asked to end at deadline - kill-after, and killed right before the deadline", () => {
  expect(endTimeMs(HOLD)).toBe(7_000);
  expect(killTimeMs(HOLD)).toBe(9_980);
  expect(mayRun(HOLD, 6_999)).toBe(true);
  expect(mayRun(HOLD, 7_000)).toBe(false);
});

test("on a loss it is asked at once and killed after kill-after, never later than the deadline", () => {
  expect(endTimeMs({ ...HOLD, endingSinceMs: 2_000 })).toBe(2_000);
  expect(killTimeMs({ ...HOLD, endingSinceMs: 2_000 })).toBe(5_000);
  expect(killTimeMs({ ...HOLD, endingSinceMs: 9_000 })).toBe(9_980);
});

test("killTimeMs() is before the deadline, and not before endTimeMs(), whatever the times", () => {
  const times = fc.integer({ min: 0, max: 100_000 });
  fc.assert(
    fc.property(times, times, fc.option(times), (deadlineMs, killAfterMs, endingSinceMs) => {
      const hold = { deadlineMs, killAfterMs, endingSinceMs };
      expect(killTimeMs(hold)).toBeLessThan(deadlineMs);
      expect(endTimeMs(hold)).toBeLessThanOrEqual(killTimeMs(hold));
      expect(mayRun(hold, deadlineMs)).toBe(false);
    }),
  );
});

test("renewed() puts the deadline off, but not that of a command that was asked to end", () => {
  expect(renewed(HOLD, 20_000)).toEqual({ ...HOLD, deadlineMs: 20_000 });
  expect(renewed(HOLD, 5_000)).toEqual(HOLD); // late news
  const times = fc.integer({ min: 0, max: 100_000 });
  fc.assert(
    fc.property(times, times, times, times, times, (deadlineMs, killMs, askedMs, laterMs, more) => {
      const asked = ending({ deadlineMs, killAfterMs: killMs, endingSinceMs: null }, askedMs);
      const after = ending(renewed(asked, deadlineMs + more), askedMs + laterMs);
      expect(killTimeMs(after)).toBe(killTimeMs(asked));
      expect(killTimeMs(asked)).toBeLessThan(deadlineMs);
      expect(killTimeMs(asked)).toBeLessThanOrEqual(askedMs + killMs);
    }),
  );
});

test("killAfterMs() is a third of the TTL, and at most half", () => {
  expect(killAfterMs(null, 15_000)).toBe(5_000);
  expect(killAfterMs(2_000, 15_000)).toBe(2_000);
  expect(killAfterMs(0, 15_000)).toBe(0);
  expect(killAfterMs(20_000, 15_000)).toBe(7_500);
});
