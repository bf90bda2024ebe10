import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { deadlineMs, renewalDueMs, timingOf } from "../../src/lease/timing.ts";

const timing = timingOf({ ttlMs: 15_000 });
const everyMs = timing.renewEveryMs;
const epochs = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const times = fc.double({ min: 0, max: 1e10, noNaN: true });

describe("renewalDueMs()", () => {
  test("is a quarter to five quarters of the interval after the proof, whatever the epoch", () => {
    fc.assert(fc.property(times, epochs, (sentAtMs, epoch) => {
      const afterMs = renewalDueMs(sentAtMs, epoch, timing) - sentAtMs;
      expect(afterMs).toBeGreaterThan(0.25 * everyMs - 0.01);
      expect(afterMs).toBeLessThan(1.25 * everyMs + 0.01);
      // Two tries more before the deadline, each given up on after 1.5 s, with a pause between.
      expect(sentAtMs + afterMs).toBeLessThan(deadlineMs(sentAtMs, timing) - 2 * 2_500);
    }));
  });

  test("is one interval after a renewal in time, and no later for one that was a little late", () => {
    fc.assert(
      fc.property(
        times,
        epochs,
        fc.double({ min: 0.01, max: 500, noNaN: true }),
        (at, epoch, lateMs) => {
          const dueMs = renewalDueMs(at, epoch, timing);
          expect(renewalDueMs(dueMs + lateMs, epoch, timing)).toBeCloseTo(dueMs + everyMs, 2);
        },
      ),
    );
  });

  test("spreads what was acquired or renewed at once evenly over the interval", () => {
    const tenths = Array<number>(10).fill(0);
    for (let epoch = 1_000_001; epoch <= 1_010_000; epoch++) {
      const afterMs = renewalDueMs(123_456.7, epoch, timing) - 123_456.7;
      tenths[Math.floor((afterMs / everyMs - 0.25) * 10)]++;
    }
    for (const count of tenths) expect(Math.abs(count - 1_000)).toBeLessThan(100);
  });
});
