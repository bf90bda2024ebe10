import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { deadlineMs, renewalDueMs, timingOf } from "../../src/lease/timing.ts";

const timing = timingOf({ ttlMs: 15_000 });
const everyMs = timing.renewEveryMs;
const epochs = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const times = fc.double({ min: 0, max: 1e10, noNaN: true });

const tenures = fc.record({ epoch: epochs, revision: epochs });

describe("renewalDueMs()", () => {
  test("is no later than an interval after the proof, but for the jitter, whatever the revisions", () => {
    fc.assert(fc.property(times, tenures, (sentAtMs, tenure) => {
      const afterMs = renewalDueMs(sentAtMs, tenure, timing) - sentAtMs;
      expect(afterMs).toBeGreaterThan(0.05 * everyMs - 0.01);
      expect(afterMs).toBeLessThan(1.05 * everyMs + 0.01);
      // Three tries more before the deadline, each given up on after 1.5 s, with a pause between.
      expect(sentAtMs + afterMs).toBeLessThan(deadlineMs(sentAtMs, timing) - 3 * 2_500);
    }));
  });

  test("is about one interval after a renewal in time, and no later for one that was a little late", () => {
    const lateness = fc.double({ min: 0.01, max: 500, noNaN: true });
    fc.assert(fc.property(times, tenures, epochs, lateness, (at, tenure, revision, lateMs) => {
      const dueMs = renewalDueMs(at, tenure, timing);
      const nextMs = renewalDueMs(dueMs + lateMs, { ...tenure, revision }, timing);
      expect(Math.abs(nextMs - dueMs - everyMs)).toBeLessThan(0.05 * everyMs + 0.01);
    }));
  });

  test("varies with the revision, so that two of one point part again", () => {
    const of = (revision: number) => renewalDueMs(0, { epoch: 7, revision }, timing);
    expect(new Set([8, 9, 10, 11].map(of)).size).toBe(4);
  });

  test("spreads what was acquired or renewed at once evenly over the interval", () => {
    const tenths = Array<number>(10).fill(0);
    for (let epoch = 1_000_001; epoch <= 1_010_000; epoch++) {
      const tenure = { epoch, revision: epoch + 300_000 };
      const afterMs = renewalDueMs(123_456.7, tenure, timing) - 123_456.7;
      tenths[Math.floor((afterMs / everyMs - 0.05) * 10)]++;
    }
    for (const count of tenths) expect(Math.abs(count - 1_000)).toBeLessThan(100);
  });
});
