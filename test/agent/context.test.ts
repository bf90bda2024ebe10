/** Which TTL counts for graces when it was made smaller, and for how long. */
import { expect, test } from "bun:test";
import { Context } from "../../src/agent/context.ts";
import type { AgentOptions } from "../../src/agent/types.ts";
import { FakeTime } from "../support/fake_time.ts";

function contextOf(options: Partial<AgentOptions> = {}) {
  const time = new FakeTime();
  const who = { node: "n", incarnation: "i", ...options } as AgentOptions;
  const context = new Context(who, { clock: time, timers: time }, {
    hasRoom: () => true,
    writes: { sentMs: -Infinity, answeredMs: -Infinity, rttMs: 0 },
    inherits: () => null,
  });
  return { context, time };
}

const graceMs = (context: Context) => context.now.timing.graceMs;

test("setTtl() to a smaller one leaves the grace what it was, for as long as grants of before may live", () => {
  const { context, time } = contextOf();
  context.setTtl(20_000);
  expect([graceMs(context), time.pending]).toEqual([20_000, 0]);
  context.setTtl(3_000);
  expect([graceMs(context), context.now.timing.ttlMs]).toEqual([20_000, 3_000]);
  const startMs = time.bootMs();
  expect(time.step()).toBe(true);
  expect([graceMs(context), time.bootMs() - startMs]).toEqual([3_000, 40_000]);
});

test("setTtl() to a smaller one again counts from then", () => {
  const { context, time } = contextOf();
  context.setTtl(20_000);
  context.setTtl(3_000);
  time.after(30_000, () => {
    context.setTtl(20_000);
    context.setTtl(5_000);
  });
  const startMs = time.bootMs();
  time.step();
  time.step();
  expect([graceMs(context), time.bootMs() - startMs]).toEqual([20_000, 40_000]);
  time.step();
  expect([graceMs(context), time.bootMs() - startMs]).toEqual([5_000, 70_000]);
});

test("setTtl() to a larger one counts at once, and the default that nobody told is none of before", () => {
  const { context, time } = contextOf();
  context.setTtl(3_000);
  expect([graceMs(context), time.pending]).toEqual([3_000, 0]);
  context.setTtl(20_000);
  expect([graceMs(context), time.pending]).toEqual([20_000, 0]);
});

test("setBuckets() counts the TTL of buckets that were lost, as long as that", () => {
  const { context, time } = contextOf();
  context.setTtl(3_000);
  const untilMs = time.bootMs() + 120_000;
  context.setBuckets("others", 60_000);
  expect([graceMs(context), context.now.remadeUntilMs]).toEqual([60_000, untilMs]);
  context.setBuckets("known", 0);
  expect([graceMs(context), context.now.remadeUntilMs]).toEqual([60_000, untilMs]);
  time.step();
  expect([graceMs(context), time.bootMs()]).toEqual([3_000, untilMs]);
});

test("a grace that was set stays what it is", () => {
  const { context } = contextOf({ graceMs: 5_000 });
  context.setTtl(20_000);
  context.setTtl(3_000);
  expect(graceMs(context)).toBe(5_000);
});
