/**
 * Faults that a reviewer found by trying: each shown on the whole, as it was found.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectNats } from "@nats-io/transport-node";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 3_000;

let server: NatsServer;
let buckets = 0;

beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** Two agents that share stores. */
async function pair() {
  const flags = ["--bucket", `review${++buckets}`, "--ttl", `${TTL_MS}ms`];
  const start = (node: string) => RealAgent.start({ node, nats: server.url, flags });
  const [alpha, beta] = [await start("alpha"), await start("beta")];
  for (const agent of [alpha, beta]) agent.makeStore("one");
  return {
    alpha,
    beta,
    bucket: flags[1],
    async [Symbol.asyncDispose]() {
      await alpha[Symbol.asyncDispose]();
      await beta[Symbol.asyncDispose]();
    },
  };
}

describe("a process that a guarded command left behind", () => {
  test("keeps its lease from being released while it has the lock", async () => {
    await using fleet = await pair();
    const { alpha, beta } = fleet;
    // The command ends at once; what it started has the lock, and may write.
    const left = Bun.spawn({
      cmd: [AGENT, "guard", "one", "--", "sh", "-c", "sleep 60 & echo $!"],
      env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: alpha.socket },
      stdout: "pipe",
      stderr: "ignore",
    });
    const reader = left.stdout.getReader();
    const pid = Number(new TextDecoder().decode((await reader.read()).value));
    expect(await left.exited).toBe(0);
    const client = await alpha.client();
    const down = client.call("stepdown", { store: "one", for_ms: 60_000 });
    await until("it drains", () => alpha.log().some((line) => line.event === "renewed"));
    expect((await refusal((await beta.client()).call("guard", { store: "one" }))).kind)
      .toBe("not_holder");
    process.kill(pid, "SIGKILL");
    expect((await down).released).toBe(1);
    const grant = await (await beta.client()).call("guard", {
      store: "one",
      wait_ms: 10_000,
      wait_lease: true,
    });
    expect(grant.node).toBe("beta");
  });
});

describe("buckets that were lost", () => {
  test("leave a grace to whoever held by them, although no record is left", async () => {
    await using fleet = await pair();
    const { alpha, beta, bucket } = fleet;
    const holder = await alpha.client();
    const grant = await holder.call("guard", { store: "one" });
    const client = await beta.client();
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("not_holder");
    // The lock is its client's until that lets go.
    holder.onNotification(({ method }) => method === "lost" && void holder.close());
    const nc = await connectNats({ servers: server.url });
    const jsm = await jetstreamManager(nc);
    await jsm.streams.delete(`KV_${bucket}`);
    await jsm.streams.delete(`KV_${bucket}-tenures`);
    await nc.close();
    const deletedMs = Date.now();
    await beta.logged("bucket_remade");
    // Whoever takes it first: the old holder does not know of its own tenure any more, either.
    const wanted = { store: "one", wait_ms: 20_000, wait_lease: true };
    const next = await Promise.any([
      client.call("guard", wanted),
      (await alpha.client()).call("guard", wanted),
    ]);
    expect(next.epoch).toBeGreaterThan(grant.epoch);
    // Alpha's deadline was at most a TTL from the deletion on.
    expect(Date.now() - deletedMs).toBeGreaterThan(TTL_MS * 0.98);
  }, 60_000);
});

describe("an agent that has not reached its coordinator", () => {
  test("is not healthy", async () => {
    const frozen = await NatsServer.start();
    frozen.freeze();
    try {
      await using agent = await RealAgent.start({
        node: "alpha",
        nats: frozen.url,
        awaitReady: false,
      });
      const check = await until("it answers", async () => {
        const result = await runClient(agent, ["--check"]);
        return result.status !== 69 && result;
      });
      expect(check.status).toBe(1);
      expect(check.stdout).toContain("coordinator");
    } finally {
      await frozen.stop();
    }
  });
});

describe("stepdown", () => {
  test("for no time at all is told as it was, at once", async () => {
    await using agent = await RealAgent.start({ node: "alone", flags: ["--drain", "30s"] });
    agent.makeStore("one");
    const client = await agent.client();
    const { token } = await client.call("guard", { store: "one" });
    await client.call("release", { token });
    const result = await client.call("stepdown", { store: "one", for_ms: 0 });
    expect(result).toEqual({ released: 1, remaining: 0 });
  }, 20_000);
});

describe("watches", () => {
  test("do not cost the leases that they watch, and are bounded for each client", async () => {
    await using fleet = await pair();
    const { alpha } = fleet;
    const [client, other] = [await alpha.client(), await alpha.client()];
    const stores = Array.from({ length: 2_000 }, (_, i) => `s${i}`);
    await client.call("held", { stores });
    for (let i = 0; i < 64; i++) await client.call("watch", {});
    expect((await refusal(client.call("watch", {}))).kind).toBe("limit");
    const before = alpha.log().filter((line) => line.event === "lost").length;
    // Everything watched changes, and changes back.
    await other.call("stepdown", { all: true, for_ms: 100 });
    await until("all are held again", async () => {
      const { counts } = await other.call("status", {});
      return counts.held >= stores.length;
    }, 30_000);
    expect(alpha.log().filter((line) => line.event === "lost").length).toBe(before);
  }, 60_000);
});

describe("standalone", () => {
  test("is told by status and --check, with its reason", async () => {
    await using agent = await RealAgent.start({ node: "alone" });
    const check = await runClient(agent, ["--check"]);
    expect(check.status).toBe(0);
    expect(check.stdout).toContain("unguarded: a test");
  });
});
