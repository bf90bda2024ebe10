import { expect, test } from "bun:test";
import fc from "fast-check";
import { ending, killAfterMs, killTimeMs, renewed, stepAt } from "../../../src/cli/guard/plan.ts";
import type { Hold } from "../../../src/cli/guard/plan.ts";

const HOLD: Hold = { deadlineMs: 10_000, killAfterMs: 3_000, endingSinceMs: null };

test("stepAt() asks at deadline - kill-after and kills right before the deadline", () => {
  expect(stepAt(HOLD, 6_999)).toEqual({ kind: "run", untilMs: 7_000 });
  expect(stepAt(HOLD, 7_000)).toEqual({ kind: "end", untilMs: 9_980 });
  expect(stepAt(HOLD, 9_979)).toEqual({ kind: "end", untilMs: 9_980 });
  expect(stepAt(HOLD, 9_980)).toEqual({ kind: "kill" });
  expect(stepAt(HOLD, 1e9)).toEqual({ kind: "kill" });
});

test("stepAt() asks at once on a loss and kills after kill-after, never later than the deadline", () => {
  expect(stepAt({ ...HOLD, endingSinceMs: 2_000 }, 2_000)).toEqual({ kind: "end", untilMs: 5_000 });
  expect(stepAt({ ...HOLD, endingSinceMs: 2_000 }, 5_000)).toEqual({ kind: "kill" });
  expect(stepAt({ ...HOLD, endingSinceMs: 9_000 }, 9_000)).toEqual({ kind: "end", untilMs: 9_980 });
});

test("stepAt() never lets a command run at its deadline, nor relents as time goes on", () => {
  const order = { run: 0, end: 1, kill: 2 };
  const times = fc.integer({ min: 0, max: 100_000 });
  fc.assert(
    fc.property(times, times, fc.option(times), times, times, (deadlineMs, killMs, lost, a, b) => {
      const hold = { deadlineMs, killAfterMs: killMs, endingSinceMs: lost };
      const [early, late] = [stepAt(hold, Math.min(a, b)), stepAt(hold, Math.max(a, b))];
      expect(order[late.kind]).toBeGreaterThanOrEqual(order[early.kind]);
      expect(stepAt(hold, deadlineMs).kind).toBe("kill");
      if (early.kind !== "kill") expect(early.untilMs).toBeGreaterThan(Math.min(a, b));
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
