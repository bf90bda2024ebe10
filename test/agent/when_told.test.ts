import { describe, expect, test } from "bun:test";
import type { Agent } from "../../src/agent/agent.ts";
import { FakeTime } from "../support/fake_time.ts";
import { plainAgent } from "../support/plain_agent.ts";
import { Reader } from "../support/slow_reader.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 10_000;

/** Time that can pass without a timer being woken, as on a busy machine. */
class LateTime extends FakeTime {
  lateMs = 0;

  override bootMs(): number {
    return super.bootMs() + this.lateMs;
  }
}

/** An agent that holds `one`, watched by `reader`, which has been told so. */
async function agentWith(time: LateTime, reader: Reader): Promise<Agent> {
  const agent = plainAgent(time, { ttlMs: TTL_MS });
  agent.watching.watch(reader, ["one"], { ok: () => {}, fail: () => {} });
  await until("it is held", () => reader.told.includes("one true"));
  reader.told.length = 0;
  return agent;
}

describe("Agent whenTold()", () => {
  test("answers at once when nothing is due", async () => {
    const [time, reader] = [new LateTime(), new Reader()];
    const agent = await agentWith(time, reader);
    agent.watching.whenTold(reader, () => reader.told.push("all told"));
    expect(reader.told.at(-1)).toBe("all told");
  });

  test("waits while timers are late, so that no store past its deadline counts as held", async () => {
    const [time, reader] = [new LateTime(), new Reader()];
    const agent = await agentWith(time, reader);
    agent.setConnected(false);
    time.lateMs = TTL_MS; // past the deadline, and nobody has noticed
    agent.watching.whenTold(reader, () => reader.told.push("all told"));
    expect(reader.told).not.toContain("one false");
    expect(reader.told).not.toContain("all told");
    while (!reader.told.includes("all told") && time.step());
    expect(reader.told.slice(-2)).toEqual(["one false", "all told"]);
  });

  test("waits while a hold is so near its deadline that a view would count on it beyond that", async () => {
    const [time, reader] = [new LateTime(), new Reader()];
    const agent = await agentWith(time, reader);
    agent.setConnected(false);
    const ask = () => agent.watching.whenTold(reader, () => reader.told.push("all told"));
    time.lateMs = TTL_MS * 0.96;
    ask();
    expect(reader.told).toEqual(["all told"]);
    time.lateMs = TTL_MS * 0.9685; // the deadline is at 98 %, and a view counts on 1 %
    ask();
    expect(reader.told).toEqual(["all told"]);
    while (reader.told.length < 3 && time.step());
    expect(reader.told).toEqual(["all told", "one false", "all told"]);
  });

  test("waits for a reader that is behind, and comes after what that is told", async () => {
    const [time, reader] = [new LateTime(), new Reader()];
    const agent = await agentWith(time, reader);
    reader.congested = true;
    agent.watching.whenTold(reader, () => reader.told.push("all told"));
    agent.setMisconfigured("the bucket changed"); // asked first, changed afterwards
    expect(reader.told).toEqual([]);
    reader.drain();
    while (!reader.told.includes("all told") && time.step());
    expect(reader.told).toEqual(["one false", "all told"]);
  });
});

describe("Agent setTtl()", () => {
  test("ends at once what is over by a TTL that was made smaller", async () => {
    const [time, reader] = [new LateTime(), new Reader()];
    const agent = await agentWith(time, reader);
    time.lateMs = 0.1 * TTL_MS;
    const changedMs = time.bootMs();
    agent.setTtl(0.1 * TTL_MS);
    while (reader.told.length === 0 && time.step());
    expect(reader.told).toEqual(["one false"]);
    expect(time.bootMs()).toBeLessThan(changedMs + 0.01 * TTL_MS);
  });

  test("ends what is held when it is over by a TTL that was made smaller", async () => {
    const [time, reader] = [new LateTime(), new Reader()];
    const agent = await agentWith(time, reader);
    const changedMs = time.bootMs();
    agent.setTtl(0.1 * TTL_MS);
    while (reader.told.length === 0 && time.step());
    expect(reader.told).toEqual(["one false"]);
    expect(time.bootMs()).toBeLessThan(changedMs + 0.1 * TTL_MS);
  });
});

describe("Agent setMisconfigured()", () => {
  test("tells watches at once that nothing is held, and what is held again", async () => {
    const [time, reader] = [new LateTime(), new Reader()];
    const agent = await agentWith(time, reader);
    agent.setMisconfigured("the bucket changed");
    expect(reader.told.at(-1)).toBe("one false");
    agent.setMisconfigured(null);
    expect(reader.told.at(-1)).toBe("one true");
  });
});
