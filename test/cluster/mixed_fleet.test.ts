/**
 * Agents and an older program in one fleet: each respects what the other holds, and takes over after
 * the other's death, with the grace.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { bun, type Child } from "../support/child.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";

const TEST_MS = 60_000;
const TTL_MS = 2_400;

let server: NatsServer;
let buckets = 0;

beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** A fleet with a bucket of its own, which an agent makes. */
function fleet() {
  const bucket = `mixed${++buckets}`;
  const flags = ["--bucket", bucket, "--ttl", `${TTL_MS}ms`];
  return {
    agent: async (node: string, more: { state?: string; locks?: string } = {}) => {
      const agent = await RealAgent.start({ node, nats: server.url, flags, ...more });
      agent.makeStore("one");
      return agent;
    },
    older: async (node: string): Promise<Child> => {
      const program = join(import.meta.dir, "older_program.ts");
      const child = bun(program, [server.url, node, String(TTL_MS), bucket]);
      reap(child.pid);
      expect(await child.line()).toBe("ready");
      return child;
    },
  };
}

/** Milliseconds from the agent's log between two events of store one. */
function between(agent: RealAgent, from: string, to: string): number {
  const at = (event: string) => {
    const line = agent.log().filter((line) => line.event === event && line.store === "one").at(-1);
    if (line === undefined) throw new Error(`${agent.options.node} logged no ${event}`);
    return Date.parse(line.time);
  };
  return at(to) - at(from);
}

describe.concurrent("an agent and an older program", () => {
  test("the older program respects an agent's hold while it is renewed", async () => {
    const { agent, older } = fleet();
    await using alpha = await agent("alpha");
    const client = await alpha.client();
    const { token, epoch } = await client.call("guard", { store: "one" });
    await using beta = await older("beta");
    beta.say("want one");
    expect(await beta.line()).toBe("foreign one alpha");
    // Tried ten times a second, over more than a TTL.
    const before = alpha.log().filter(({ event }) => event === "renewed").length;
    const renewals = () => alpha.log().filter(({ event }) => event === "renewed").length;
    while (renewals() < before + 5) await Bun.sleep(20);
    expect(await client.call("verify", { token, store: "one" })).toMatchObject({ epoch });
    expect(alpha.log().some(({ event }) => event === "lost")).toBe(false);
    await client.call("release", { token });
  }, TEST_MS);

  test("an agent that only told who holds a store owes that older program its grace", async () => {
    const { agent, older } = fleet();
    await using alpha = await agent("alpha");
    await using beta = await older("beta");
    beta.say("want one");
    expect(await beta.line()).toStartWith("acquired one");
    const client = await alpha.client();
    expect(await client.call("holder", { store: "one" })).toMatchObject({ node: "beta" });
    await beta.kill();
    while ((await client.call("holder", { store: "one" })).state !== "free") await Bun.sleep(50);
    // No tenure record is there, and this store was never asked for here.
    const { kind } = await refusal(client.call("guard", { store: "one", wait_ms: 500 }));
    expect(kind).toBe("grace");
  }, TEST_MS);

  test("the older program takes over from a dead agent, after TTL and its own grace", async () => {
    const { agent, older } = fleet();
    await using alpha = await agent("alpha");
    await (await alpha.client()).call("guard", { store: "one" });
    await using beta = await older("beta");
    beta.say("want one");
    expect(await beta.line()).toBe("foreign one alpha");
    await alpha.end("SIGKILL");
    expect(await beta.line()).toStartWith("acquired one");
    const acquiredMs = performance.now();
    expect(await beta.line()).toBe("granted one");
    expect(performance.now() - acquiredMs).toBeGreaterThan(TTL_MS - 200);
  }, TEST_MS);

  test(
    "the older program takes over from an agent that stops, without waiting for the TTL",
    async () => {
      const { agent, older } = fleet();
      await using alpha = await agent("alpha");
      const client = await alpha.client();
      const { token } = await client.call("guard", { store: "one" });
      await client.call("release", { token });
      await using beta = await older("beta");
      beta.say("want one");
      expect(await beta.line()).toBe("foreign one alpha");
      expect(await alpha.end("SIGTERM")).toBe(0);
      const endedMs = performance.now();
      expect(await beta.line()).toStartWith("acquired one");
      expect(performance.now() - endedMs).toBeLessThan(TTL_MS / 2);
    },
    TEST_MS,
  );

  test("an agent respects the older program's hold and names it", async () => {
    const { agent, older } = fleet();
    await using alpha = await agent("alpha");
    await using beta = await older("beta");
    beta.say("want one");
    expect(await beta.line()).toStartWith("acquired one");
    expect(await beta.line()).toBe("granted one");
    const client = await alpha.client();
    const { kind, error } = await refusal(
      client.call("guard", { store: "one", wait_ms: 2 * TTL_MS, wait_lease: true }),
    );
    expect(kind).toBe("not_holder");
    expect(error.holder).toMatchObject({ node: "beta", address: null, epoch: null });
    expect(await client.call("holder", { store: "one" }))
      .toMatchObject({ state: "other", node: "beta" });
    expect((await client.call("held", { store: "one" })).held).toBe(false);
    beta.say("release one");
    // Neither lost it in the meantime nor was disturbed: its next word is its own release.
    expect(await beta.line()).toBe("released one");
  }, TEST_MS);

  test("an agent takes over from the dead older program, with the grace", async () => {
    const { agent, older } = fleet();
    await using alpha = await agent("alpha");
    const beta = await older("beta");
    beta.say("want one");
    expect(await beta.line()).toStartWith("acquired one");
    const client = await alpha.client();
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("not_holder");
    await beta.kill();
    const waiting = client.call("guard", { store: "one", wait_ms: 20_000, wait_lease: true });
    await alpha.logged("acquired", { store: "one" });
    const { kind, error } = await refusal(client.call("guard", { store: "one" }));
    expect(kind).toBe("grace");
    expect(error.retryAfterMs).toBeLessThanOrEqual(TTL_MS);
    await waiting;
    expect(between(alpha, "acquired", "granted")).toBeGreaterThanOrEqual(TTL_MS - 50);
  }, TEST_MS);

  test(
    "an agent that was restarted since it saw the older program owes the grace all the same",
    async () => {
      const { agent, older } = fleet();
      const first = await agent("alpha");
      const beta = await older("beta");
      beta.say("want one");
      expect(await beta.line()).toStartWith("acquired one");
      const asked = refusal((await first.client()).call("guard", { store: "one" }));
      expect((await asked).kind).toBe("not_holder");
      await first.end("SIGKILL");
      await beta.kill();
      await using second = await agent("alpha", { state: first.state, locks: first.locks });
      const client = await second.client();
      await client.call("guard", { store: "one", wait_ms: 20_000, wait_lease: true });
      expect(between(second, "acquired", "granted")).toBeGreaterThanOrEqual(TTL_MS - 50);
    },
    TEST_MS,
  );

  test("after the older program's turn, a later handoff between agents owes nothing", async () => {
    const { agent, older } = fleet();
    await using alpha = await agent("alpha");
    const beta = await older("beta");
    beta.say("want one");
    expect(await beta.line()).toStartWith("acquired one");
    const client = await alpha.client();
    await refusal(client.call("guard", { store: "one" }));
    await beta.kill();
    const { token } = await client.call("guard", {
      store: "one",
      wait_ms: 20_000,
      wait_lease: true,
    });
    await client.call("release", { token });
    await using gamma = await agent("gamma");
    const next = (await gamma.client())
      .call("guard", { store: "one", wait_ms: 20_000, wait_lease: true });
    await gamma.logged("foreign", { store: "one" });
    expect(await alpha.end("SIGTERM")).toBe(0);
    await next;
    expect(gamma.log().some(({ event }) => event === "grace")).toBe(false);
  }, TEST_MS);
});
