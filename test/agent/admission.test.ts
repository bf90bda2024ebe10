/** What a guard is told before its store is looked at, and in which order. */
import { describe, expect, test } from "bun:test";
import type { Client, Observer } from "../../src/agent/types.ts";
import type { Kind, Refusal } from "../../src/lease/errors.ts";
import { plainAgent } from "../support/plain_agent.ts";
import { FakeTime } from "../support/fake_time.ts";
import { RealAgent, refusal } from "../support/real_agent.ts";

const WRONG = [
  "",
  "../a",
  "a..b",
  "-a",
  "a b",
  "a\n",
  "é",
  "*",
  "x".repeat(129),
  "y".repeat(1_000_000),
];

const CLIENT = { id: 1, pid: 1, uid: 1 } as Client;
const HOW = { waitMs: 0, shared: false, waitLease: false, passLock: false, follow: false };

/** An agent alone, what its guards are refused for, and the stores that the observer heard of. */
function agentAlone(options: { maxWaiters?: number; maxStores?: { all: number; ofUser: number } }) {
  const told: [string, string][] = [];
  const observer = new Proxy({} as Observer, {
    get: (_, name) =>
      name === "guarded"
        ? (store: string, outcome: "granted" | Kind) => told.push([store, outcome])
        : () => null,
  });
  const agent = plainAgent(new FakeTime(), { ttlMs: 3_000, ...options, ports: { observer } });
  return {
    agent,
    told,
    /** Its refusal, which comes within the call. */
    guard(store: string): Refusal {
      let refused: Refusal | null = null;
      const ok = () => expect.unreachable();
      agent.guard(CLIENT, { store, ...HOW }, { ok, fail: (refusal) => refused = refusal });
      return refused!;
    },
  };
}

describe("guard() of what is no store code", () => {
  test.each(WRONG)("is invalid, and leaves nothing behind (%#)", (code) => {
    const { agent, told, guard } = agentAlone({});
    const { kind, message } = guard(code);
    expect(kind).toBe("invalid");
    expect(message).toStartWith('Cannot answer "guard": Parameter store is not a store code: "');
    expect(agent.leases({ limit: 10 }).leases).toEqual([]);
    expect(agent.counts()).toEqual({ held: 0, waiting: 0, foreign: 0, grants: 0, waiters: 0 });
    expect(told.map(([, outcome]) => outcome)).toEqual(["invalid"]);
    expect(told[0]![0].length).toBeLessThan(150);
  });

  test("is draining, misconfigured or limit when the agent is so, as for any store", () => {
    const none = { all: 0, ofUser: 0 };
    const limited = [{ maxWaiters: 0 }, { maxStores: none }].map((options) => agentAlone(options));
    const draining = agentAlone({});
    draining.agent.setMisconfigured("the bucket is wrong");
    draining.agent.drain(() => {});
    const misconfigured = agentAlone({ maxWaiters: 0 });
    misconfigured.agent.setMisconfigured("the bucket is wrong");
    const cases = [
      ...limited.map((alone) => [alone, "limit"] as const),
      [draining, "draining"] as const,
      [misconfigured, "misconfigured"] as const,
    ];
    for (const [{ agent, guard, told }, kind] of cases) {
      for (const code of ["fine", ...WRONG]) {
        const refused = guard(code);
        expect([code, refused.kind]).toEqual([code, kind]);
        expect(refused.message.length).toBeLessThan(400);
        // deno-lint-ignore no-control-regex
        expect(refused.message).not.toMatch(/[\x00-\x1f]/);
      }
      expect(Math.max(...told.map(([store]) => store.length))).toBeLessThan(150);
      expect(agent.leases({ limit: 10 }).leases).toEqual([]);
    }
    misconfigured.agent.setMisconfigured(null);
    expect(misconfigured.guard("../a").kind).toBe("limit");
  });
});

test("a shutdown is told before a wrong store code, and after a wrong type", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  agent.makeStore("one");
  const client = await agent.client();
  expect((await refusal(client.call("guard", { store: "../a" }))).error.message)
    .toContain('Parameter store is not a store code: "../a" (1 to 128 of');
  const { token } = await client.call("guard", { store: "one" });
  agent.signal("SIGTERM");
  await agent.logged("draining");
  const kindOf = async (params: object) =>
    (await refusal(client.call("guard", params as { store: string }))).kind;
  expect(await kindOf({ store: "../a" })).toBe("draining");
  expect(await kindOf({ store: "one" })).toBe("draining");
  expect(await kindOf({ store: 5 })).toBe("invalid");
  expect(await kindOf({ store: "../a", wait_ms: "1" })).toBe("invalid");
  await client.call("release", { token });
  expect(await agent.exited()).toBe(0);
});
