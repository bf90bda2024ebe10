/**
 * A TTL that is made smaller: whoever goes by the old one has grants that live as long as they were told, and
 * nobody is granted beside them.
 */
import { describe, expect, test } from "bun:test";
import { nanos } from "@nats-io/transport-node";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { Admin } from "../support/admin.ts";
import { freezeProcess } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 90_000;
const LONG_MS = 12_000;
const SHORT_MS = 3_000;
const LONG = ["--ttl", `${LONG_MS}ms`];
const SHORT = ["--ttl", `${SHORT_MS}ms`];

async function start(node: string, server: NatsServer, flags: readonly string[]) {
  const agent = await RealAgent.start({ node, nats: server.url, flags: [...flags] });
  agent.makeStore("one");
  return agent;
}

/** Starts an agent that goes by the long TTL, gives a grant, and hears no more. */
async function frozenHolder(server: NatsServer) {
  const agent = await start("alpha", server, LONG);
  const grant = await (await agent.client()).call("guard", { store: "one" });
  freezeProcess(agent.pid);
  return { agent, grant };
}

/** Waits for a grant by another agent; returns by how much it came after `deadlineMs`. */
async function grantedAfter(agent: RealAgent, deadlineMs: number): Promise<number> {
  const client = await agent.client();
  await client.call("guard", { store: "one", wait_ms: 60_000, wait_lease: true });
  return bootTimeMs() - deadlineMs;
}

async function setTtl(server: NatsServer, ttlMs: number): Promise<void> {
  await using admin = await Admin.connect(server.url);
  const age = { max_age: nanos(ttlMs), duplicate_window: nanos(ttlMs) };
  await admin.jsm.streams.update("KV_leases", age);
}

describe.concurrent("a TTL that is made smaller", () => {
  test(
    "as the manual says, by stopping all agents and deleting the bucket: a guard that goes on is waited for",
    async () => {
      await using server = await NatsServer.start();
      await using alpha = await start("alpha", server, [...LONG, "--drain", "100ms"]);
      const { deadline_boot_ms } = await (await alpha.client()).call("guard", { store: "one" });
      expect(await alpha.end("SIGTERM")).toBe(0);
      await using admin = await Admin.connect(server.url);
      await admin.jsm.streams.delete("KV_leases");
      await using beta = await start("beta", server, SHORT);
      expect(await grantedAfter(beta, deadline_boot_ms)).toBeGreaterThan(0);
    },
    TEST_MS,
  );

  test(
    "by an agent that makes the lost bucket again: the frozen holder's grant is waited for",
    async () => {
      await using server = await NatsServer.start();
      const { agent, grant } = await frozenHolder(server);
      await using _ = agent;
      await using admin = await Admin.connect(server.url);
      await admin.jsm.streams.delete("KV_leases");
      await using beta = await start("beta", server, SHORT);
      expect(await grantedAfter(beta, grant.deadline_boot_ms)).toBeGreaterThan(0);
    },
    TEST_MS,
  );

  test("an agent that owes that grace ends within it: the next one owes it as well", async () => {
    await using server = await NatsServer.start();
    const { agent, grant } = await frozenHolder(server);
    await using _ = agent;
    await setTtl(server, SHORT_MS);
    const beta = await start("beta", server, []);
    const client = await beta.client();
    const { kind } = await refusal(
      client.call("guard", { store: "one", wait_ms: 2 * SHORT_MS, wait_lease: true }),
    );
    expect(kind).toBe("grace");
    expect(await beta.end("SIGTERM")).toBe(0);
    await using gamma = await start("gamma", server, []);
    expect(await grantedAfter(gamma, grant.deadline_boot_ms)).toBeGreaterThan(0);
  }, TEST_MS);

  test("on the bucket, and taken up by an agent that is started then", async () => {
    await using server = await NatsServer.start();
    const { agent, grant } = await frozenHolder(server);
    await using _ = agent;
    await setTtl(server, SHORT_MS);
    await using beta = await start("beta", server, []);
    expect(await grantedAfter(beta, grant.deadline_boot_ms)).toBeGreaterThan(0);
  }, TEST_MS);

  test("by mistake, and put right again while another agent takes the store over", async () => {
    await using server = await NatsServer.start();
    await using beta = await start("beta", server, LONG);
    const { agent, grant } = await frozenHolder(server);
    await using _ = agent;
    const client = await beta.client();
    // From now on it wants the store.
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("not_holder");
    const waits = refusal(
      client.call("guard", { store: "one", wait_lease: true, wait_ms: 10 * TEST_MS }),
    );
    await setTtl(server, SHORT_MS);
    await beta.logged("problem", { check: "bucket" });
    // Who waits is told so, too, and not by and by that a holder of long ago still holds it.
    expect((await waits).kind).toBe("misconfigured");
    await until(
      "the entry has aged out",
      async () => (await client.call("holder", { store: "one" })).state === "free",
    );
    // What it could not grant, it leaves to others.
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("misconfigured");
    await Bun.sleep(SHORT_MS / 3);
    expect(beta.log().filter(({ event }) => event === "acquired")).toEqual([]);
    await setTtl(server, LONG_MS);
    await beta.logged("problem_over", { check: "bucket" });
    expect(await grantedAfter(beta, grant.deadline_boot_ms)).toBeGreaterThan(0);
  }, TEST_MS);

  test.each([
    ["the agent that makes them again was told none, and goes by that of before", [], LONG_MS],
    ["the agent that makes them again is told a smaller one", SHORT, SHORT_MS],
  ])("with both buckets lost: %s", async (_, flags, ttlMs) => {
    await using server = await NatsServer.start();
    const first = await start("beta", server, LONG);
    expect(await first.end("SIGTERM")).toBe(0);
    const { agent, grant } = await frozenHolder(server);
    await using _agent = agent;
    await server.wipe();
    await server.restart();
    await using beta = await RealAgent.start({
      node: "beta",
      nats: server.url,
      state: first.state,
      flags: [...flags],
    });
    expect(await beta.logged("coordinator_ready")).toMatchObject({ ttl_ms: ttlMs });
    beta.makeStore("one");
    expect(await grantedAfter(beta, grant.deadline_boot_ms)).toBeGreaterThan(0);
  }, TEST_MS);
});
