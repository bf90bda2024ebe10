/** What a watch of all stores keeps of those that the agent forgot. */
import { expect, test } from "bun:test";
import type { Agent } from "../../src/agent/agent.ts";
import { FakeTime } from "../support/fake_time.ts";
import { plainAgent } from "../support/plain_agent.ts";
import { Reader } from "../support/slow_reader.ts";

const TTL_MS = 3_000;

function watched() {
  const [time, reader] = [new FakeTime(), new Reader()];
  const agent = plainAgent(time, { ttlMs: TTL_MS, interestMs: 2 * TTL_MS });
  agent.watching.watch(reader, null, { ok: () => {}, fail: () => {} });
  const ask = (code: string) => agent.asking.one(reader, code, { ok: () => {}, fail: () => {} });
  return { time, reader, agent, ask };
}

/** Lets time pass until it is so; what the coordinator answers comes between two timers. */
async function pass(time: FakeTime, isSo: () => boolean): Promise<void> {
  while (!isSo()) {
    time.step();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const isKnown = (agent: Agent, code: string) => agent.inspect(code) !== null;

test("a store that was forgotten is told anew when somebody asks about it again", async () => {
  const { time, reader, agent, ask } = watched();
  ask("one");
  await pass(time, () => reader.told.includes("one true"));
  await pass(time, () => !isKnown(agent, "one"));
  expect(reader.told.at(-1)).toBe("one false");
  reader.told.length = 0;
  agent.setConnected(false);
  ask("one");
  expect(reader.told).toEqual(["one false"]);
});

test("what was told as held is told as not held, though it was forgotten before it could be", async () => {
  const { time, reader, agent, ask } = watched();
  ask("one");
  await pass(time, () => reader.told.includes("one true"));
  reader.congested = true;
  await pass(time, () => !isKnown(agent, "one"));
  expect(reader.told.at(-1)).toBe("one true");
  reader.drain();
  expect(reader.told.at(-1)).toBe("one false");
  reader.told.length = 0;
  agent.setConnected(false);
  ask("one");
  expect(reader.told).toEqual(["one false"]);
});

test("nothing is kept of a store that came and went while nobody read", async () => {
  const { time, reader, agent, ask } = watched();
  reader.congested = true;
  ask("one");
  expect(isKnown(agent, "one")).toBe(true);
  await pass(time, () => !isKnown(agent, "one"));
  reader.drain();
  expect(reader.told).toEqual([]);
});

test("a store is forgotten in its time after the last watch of it ended, not before", async () => {
  const [time, reader] = [new FakeTime(), new Reader()];
  const agent = plainAgent(time, { ttlMs: TTL_MS, interestMs: 2 * TTL_MS });
  let watch = "";
  agent.watching.watch(reader, ["one"], { ok: (id) => watch = id, fail: () => {} });
  let over = false;
  time.after(4 * TTL_MS, () => (over = true));
  await pass(time, () => over);
  expect(isKnown(agent, "one")).toBe(true);
  expect(agent.watching.unwatch(reader, watch)).toBe(true);
  over = false;
  time.after(4 * TTL_MS, () => (over = true));
  await pass(time, () => over);
  expect(isKnown(agent, "one")).toBe(false);
});

test("a store that is not to be held at all events any more is forgotten like any other", async () => {
  const time = new FakeTime();
  const agent = plainAgent(time, { ttlMs: TTL_MS, interestMs: 2 * TTL_MS });
  agent.setPinned(new Set(["one", "two"]));
  agent.setPinned(new Set(["two"]));
  await pass(time, () => !isKnown(agent, "one") || time.bootMs() > 20 * TTL_MS);
  expect([isKnown(agent, "one"), isKnown(agent, "two")]).toEqual([false, true]);
});
