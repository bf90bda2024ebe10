/** Very many stores that somebody asks about for the first time: a limit, and everybody else's turn. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import type { Client } from "../../src/agent/types.ts";
import type { Refusal } from "../../src/lease/errors.ts";
import { FakeTime } from "../support/fake_time.ts";
import { NatsServer } from "../support/nats.ts";
import { plainAgent } from "../support/plain_agent.ts";
import { RealAgent } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const codes = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, i) => `s${from + i}`);

function client(id: number, uid: number): Client {
  const nothing = () => {};
  return {
    id,
    uid,
    pid: 1,
    congested: false,
    onDrain: nothing,
    lost: nothing,
    deadline: nothing,
    changed: nothing,
  };
}

/** An agent that gets to know ten stores, six of them because of one user. */
function limited() {
  const time = new FakeTime();
  const options = { ttlMs: 10_000, interestMs: 60_000, maxStores: { all: 10, ofUser: 6 } };
  const agent = plainAgent(time, options);
  const refusals: Refusal[] = [];
  const fail = (refusal: Refusal) => refusals.push(refusal);
  /** Whether it was refused; answers may come later. */
  const refused = (ask: () => void) => {
    const before = refusals.length;
    ask();
    return refusals.length > before;
  };
  return {
    time,
    agent,
    refusals,
    held: (who: Client, stores: string[]) =>
      refused(() => agent.asking.many(who, stores, { ok() {}, fail })),
    heldOne: (who: Client, store: string) =>
      refused(() => agent.asking.one(who, store, { ok() {}, fail })),
    watch: (who: Client, stores: string[]) =>
      refused(() => agent.watching.watch(who, stores, { ok() {}, fail })),
    guard: (who: Client, store: string) => {
      const wish = { waitMs: 0, shared: false, waitLease: false, passLock: false, follow: false };
      return refused(() => agent.guard(who, { ...wish, store }, { ok() {}, fail }));
    },
  };
}

test("held, watch and guard are told limit when a user, or all, asked about too many stores", () => {
  const { agent, refusals, ...ask } = limited();
  const [first, second] = [client(1, 1_001), client(2, 1_002)];
  expect(ask.held(first, codes(0, 6))).toBe(false);
  // Nothing new for this user, by whatever connection and in whatever way.
  const again = client(3, 1_001);
  expect([
    ask.heldOne(again, "more"),
    ask.held(again, ["s0", "more"]),
    ask.watch(again, ["more"]),
    ask.guard(again, "more"),
  ]).toEqual([true, true, true, true]);
  // What is known can be asked about; another user has room of his own.
  expect([ask.held(again, codes(0, 6)), ask.heldOne(second, "more")]).toEqual([false, false]);
  expect(ask.watch(second, codes(6, 9))).toBe(false);
  expect(ask.heldOne(second, "eleventh")).toBe(true);
  expect(new Set(refusals.map(({ kind }) => kind))).toEqual(new Set(["limit"]));
  expect(refusals.at(-1)!.message).toMatch(/^Cannot ask about store eleventh: .* room for 0 new/);
  expect(agent.leases({ limit: 100 }).leases.length).toBe(10);
  // What is given at start is not subject to it.
  agent.setPinned(new Set(codes(20, 40)));
  expect(agent.leases({ limit: 100 }).leases.length).toBe(30);
});

test("stores that nobody asks about any more make room for others", async () => {
  const { agent, time, ...ask } = limited();
  const who = client(1, 1_001);
  expect(ask.held(who, codes(0, 6))).toBe(false);
  expect(ask.heldOne(who, "more")).toBe(true);
  await until("the others are forgotten", () => {
    time.step();
    return agent.leases({ limit: 100 }).leases.length === 0;
  });
  expect(ask.held(who, codes(10, 16))).toBe(false);
});

/** A program that asks about very many stores nobody has heard of, in the way that it is told. */
const CROWD = `
import { openConnection } from ${JSON.stringify(join(import.meta.dir, "../../src/client/mod.ts"))};
const [socket, way, count] = process.argv.slice(-3);
const agent = await openConnection({ socket });
const codes = Array.from({ length: Number(count) }, (_, i) => "crowd-" + i);
if (way === "single") await Promise.all(codes.map((store) => agent.call("held", { store })));
if (way === "watch") await agent.call("watch", { stores: codes });
if (way === "many") {
  const parts = Array.from({ length: codes.length / 10_000 }, (_, i) => i * 10_000);
  await Promise.all(
    parts.map((from) => agent.call("held", { stores: codes.slice(from, from + 10_000) })),
  );
}
console.log("answered");
await new Promise(() => {});
`;

test.each(["many", "single", "watch"])(
  "verify goes on for others while a client asks about 50,000 new stores (%s)",
  async (way) => {
    await using server = await NatsServer.start();
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--log-level", "info"],
    });
    agent.makeStore("mine");
    const client = await agent.client();
    const { token } = await client.call("guard", { store: "mine" });
    await using crowd = Bun.spawn([
      ...[process.execPath, "-e", CROWD, agent.socket, way, "50000"],
    ], { stdout: "pipe", stderr: "inherit" });
    const startMs = performance.now();
    const held = async () => (await client.call("status", {})).counts.held;
    await until("some of them are held", async () => await held() > 100);
    // Who asks for one thing does not wait for them: it is the first question about this store, too.
    expect((await client.call("held", { store: "other" })).held).toBe(true);
    let slowestMs = 0;
    while (await held() < 25_000) {
      const askedMs = performance.now();
      // Before, it was refused as unavailable: its answer stood behind all that was asked.
      await client.call("verify", { token, store: "mine" });
      slowestMs = Math.max(slowestMs, performance.now() - askedMs);
    }
    expect(slowestMs).toBeLessThan((performance.now() - startMs) / 2);
    crowd.kill();
  },
  120_000,
);
