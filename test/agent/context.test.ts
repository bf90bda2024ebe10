/** Which TTL counts for graces when it was made smaller, and for how long. */
import { expect, test } from "bun:test";
import { Context } from "../../src/agent/context.ts";
import type { AgentOptions } from "../../src/agent/types.ts";

function contextOf(options: Partial<AgentOptions> = {}): Context {
  return new Context({ node: "n", incarnation: "i", ...options } as AgentOptions, {
    hasRoom: () => true,
    writes: { sentMs: -Infinity, answeredMs: -Infinity, rttMs: 0 },
    inherits: () => null,
  });
}

const graceMs = (context: Context) => context.now.timing.graceMs;

test("setTtl() to a smaller one leaves the grace what it was, for as long as grants of before may live", () => {
  const context = contextOf();
  context.setTtl(20_000, 0);
  expect([graceMs(context), context.refreshAtMs]).toEqual([20_000, -Infinity]);
  context.setTtl(3_000, 1_000);
  expect([graceMs(context), context.now.timing.ttlMs]).toEqual([20_000, 3_000]);
  expect(context.refreshAtMs).toBe(41_000);
  context.refresh(40_999);
  expect(graceMs(context)).toBe(20_000);
  context.refresh(41_000);
  expect([graceMs(context), context.refreshAtMs]).toEqual([3_000, -Infinity]);
});

test("setTtl() to a larger one counts at once, and the default that nobody told is none of before", () => {
  const context = contextOf();
  context.setTtl(3_000, 0);
  expect([graceMs(context), context.refreshAtMs]).toEqual([3_000, -Infinity]);
  context.setTtl(20_000, 1_000);
  expect([graceMs(context), context.refreshAtMs]).toEqual([20_000, -Infinity]);
});

test("setBuckets() counts the TTL of buckets that were lost, as long as that", () => {
  const context = contextOf();
  context.setTtl(3_000, 0);
  context.setBuckets("others", 1_000, 60_000);
  expect([graceMs(context), context.now.remadeUntilMs]).toEqual([60_000, 121_000]);
  context.setBuckets("known", 61_000, 0);
  expect([graceMs(context), context.now.remadeUntilMs]).toEqual([60_000, 121_000]);
  context.refresh(121_000);
  expect(graceMs(context)).toBe(3_000);
});

test("a grace that was set stays what it is", () => {
  const context = contextOf({ graceMs: 5_000 });
  context.setTtl(20_000, 0);
  context.setTtl(3_000, 1_000);
  expect(graceMs(context)).toBe(5_000);
});
