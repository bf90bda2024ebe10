/**
 * What an operator does to the coordinator while agents run: permissions, passwords, the buckets. Each
 * shown on real agents and a real nats-server.
 */
import { describe, expect, test } from "bun:test";
import { nanos } from "@nats-io/transport-node";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

function users(publish: string): string {
  return `authorization { users: [{ user: agent, password: secret, permissions: {
    publish: { allow: [${publish}] } } }] }`;
}

const ALL = '">"';

async function agentWithPassword(server: NatsServer) {
  const password = join(server.dir, "password");
  writeFileSync(password, "secret\n");
  const flags = ["--user", "agent", "--password-file", password];
  const agent = await RealAgent.start({ node: "alpha", nats: server.url, flags });
  agent.makeStore("one");
  return { agent, password };
}

describe("permissions", () => {
  test(
    "a user that may not write is told by --check and by the refusal, with what to do",
    async () => {
      await using server = await NatsServer.start({ config: users(ALL) });
      const { agent } = await agentWithPassword(server);
      await using _agent = agent;
      expect((await runClient(agent, ["--check"])).status).toBe(0);
      await server.reload(users('"$JS.API.STREAM.INFO.*"'));
      const client = await agent.client();
      const asked = performance.now();
      const { kind, error } = await refusal(client.call("guard", { store: "one" }));
      expect(kind).toBe("unavailable");
      expect(error.message).toContain("publish to $KV.leases.one; allow it");
      expect(performance.now() - asked).toBeLessThan(1_500);
      const check = await runClient(agent, ["--check"]);
      expect(check.status).toBe(1);
      expect(check.stdout).toContain("permissions: ");
      expect(check.stdout).toContain("$KV.leases.>");
      await server.reload(users(ALL));
      await agent.logged("problem_over", { check: "permissions" });
      expect((await client.call("guard", { store: "one" })).epoch).toBeGreaterThan(0);
      expect((await runClient(agent, ["--check"])).status).toBe(0);
    },
    TEST_MS,
  );
});

describe("credentials", () => {
  test(
    "a wrong password read on SIGHUP is a warning: the connection made with the old one goes on",
    async () => {
      await using server = await NatsServer.start({ config: users(ALL) });
      const { agent, password } = await agentWithPassword(server);
      await using _agent = agent;
      writeFileSync(password, "wrong\n");
      agent.signal("SIGHUP");
      await agent.logged("reload_failed");
      const client = await agent.client();
      const { token } = await client.call("guard", { store: "one" });
      await client.call("release", { token });
      const check = await runClient(agent, ["--check"]);
      expect([check.status, check.stdout]).toEqual([0, expect.stringContaining("old credentials")]);
    },
    TEST_MS,
  );
});

describe("the buckets", () => {
  test(
    "that were made with one replica are a warning in the log, once, and no failing check",
    async () => {
      await using server = await NatsServer.start();
      await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
      const created = agent.log().filter(({ event }) => event === "bucket_created");
      expect(created.map(({ level, replicas }) => [level, replicas])).toEqual([["warn", 1], [
        "warn",
        1,
      ]]);
      expect(created[1].message).toContain("no store can be written while its server is away");
      const check = await runClient(agent, ["--check"]);
      expect([check.status, check.stdout]).toEqual([0, expect.not.stringContaining("replica")]);
    },
    TEST_MS,
  );

  test("that were deleted and made again owe the next holder's grace", async () => {
    await using server = await NatsServer.start();
    const flags = ["--ttl", "4s"];
    await using alpha = await RealAgent.start({ node: "alpha", nats: server.url, flags });
    await using beta = await RealAgent.start({ node: "beta", nats: server.url, flags });
    for (const agent of [alpha, beta]) agent.makeStore("one");
    await (await alpha.client()).call("guard", { store: "one" });
    await using admin = await Admin.connect(server.url);
    const waiting = (await beta.client()).call("guard", {
      store: "one",
      wait_ms: 40_000,
      wait_lease: true,
    });
    await beta.logged("foreign", { store: "one" });
    // Alpha is stopped: it neither makes the buckets again nor sees that they are others.
    alpha.signal("SIGSTOP");
    try {
      await admin.jsm.streams.delete("KV_leases");
      await admin.jsm.streams.delete("KV_leases-tenures");
      await beta.logged("bucket_remade");
      await waiting;
      const acquired = await beta.logged("acquired", { store: "one" });
      const granted = await beta.logged("granted", { store: "one" });
      const waitedMs = Date.parse(granted.time) - Date.parse(acquired.time);
      expect(waitedMs).toBeGreaterThanOrEqual(4_000 - 100);
    } finally {
      alpha.signal("SIGCONT");
    }
  }, TEST_MS);

  test(
    "that were lost owe a grace also to an agent that was not there, or is started again",
    async () => {
      await using server = await NatsServer.start();
      const flags = ["--ttl", "4s"];
      await using alpha = await RealAgent.start({ node: "alpha", nats: server.url, flags });
      const first = await RealAgent.start({ node: "beta", nats: server.url, flags });
      expect(await first.end("SIGTERM")).toBe(0);
      alpha.makeStore("one");
      await (await alpha.client()).call("guard", { store: "one" });
      // Alpha has a grant, and does not see what follows.
      alpha.signal("SIGSTOP");
      try {
        await server.wipe();
        await server.restart();
        const options = { node: "beta", nats: server.url, flags, state: first.state };
        const second = await RealAgent.start(options);
        await second.logged("bucket_remade");
        await second.end("SIGKILL");
        await using third = await RealAgent.start(options);
        third.makeStore("one");
        const { kind } = await refusal(
          (await third.client()).call("guard", { store: "one", wait_ms: 1_000, wait_lease: true }),
        );
        expect(kind).toBe("grace");
        await third.logged("bucket_remade");
      } finally {
        alpha.signal("SIGCONT");
      }
    },
    TEST_MS,
  );

  test(
    "a TTL that is made smaller ends grants by it, and granting until it is put right",
    async () => {
      await using server = await NatsServer.start();
      const ttlMs = 24_000;
      await using agent = await RealAgent.start({
        node: "alpha",
        nats: server.url,
        flags: ["--ttl", `${ttlMs}ms`],
      });
      agent.makeStore("one");
      const client = await agent.client();
      let renewedMs = Infinity;
      const lost = new Promise<number>((resolve) =>
        client.onNotification(({ method }) => {
          if (method === "renewed") renewedMs = performance.now();
          if (method === "lost") resolve(performance.now());
        })
      );
      const { token, remaining_ms } = await client.call("guard", { store: "one", follow: true });
      expect(remaining_ms).toBeGreaterThan(20_000);
      // Over by the smaller TTL, and not about to be renewed, which would be after a third of this one.
      await until("it was renewed a while ago", () => {
        const agoMs = performance.now() - renewedMs;
        return agoMs > 3_200 && agoMs < 5_000;
      }, 2 * ttlMs);
      await using admin = await Admin.connect(server.url);
      await admin.jsm.streams.update("KV_leases", {
        max_age: nanos(3_000),
        duplicate_window: nanos(3_000),
      });
      const changed = performance.now();
      await agent.logged("problem", { check: "bucket" });
      expect((await client.call("status", {})).ttl_ms).toBe(3_000);
      expect((await lost) - changed).toBeLessThan(6_000);
      expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("lost");
      for (const store of ["one", "../no store code"]) {
        expect((await refusal(client.call("guard", { store }))).kind).toBe("misconfigured");
      }
      await admin.jsm.streams.update("KV_leases", { max_age: nanos(ttlMs) });
      await agent.logged("problem_over", { check: "bucket" });
      expect((await client.call("status", {})).ttl_ms).toBe(ttlMs);
      await client.call("release", { token }).catch(() => {});
      await until(
        "it guards again",
        () => client.call("guard", { store: "one", wait_ms: 20_000 }).then(() => true, () => false),
      );
    },
    TEST_MS,
  );
});
