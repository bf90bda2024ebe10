/**
 * Faults that others had, each provoked on real agents and real servers.
 */
import { describe, expect, test } from "bun:test";
import { DiscardPolicy, StorageType } from "@nats-io/jetstream";
import { headers } from "@nats-io/transport-node";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Admin } from "../support/admin.ts";
import { python } from "../support/child.ts";
import { freePort, NatsCluster, NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { reapDir } from "../support/reaper.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 120_000;
const TTL_MS = 2_000;
const TTL_FLAGS = ["--ttl", `${TTL_MS}ms`];

/** Resolves with what `--check` prints once it prints this; else tells what it printed instead. */
async function checkSays(agent: RealAgent, words: RegExp): Promise<string> {
  let printed = "";
  try {
    return await until(`--check says ${words}`, async () => {
      printed = (await runClient(agent, ["--check"])).stdout;
      return words.test(printed) && printed;
    }, 30_000);
  } catch (error) {
    const tail = agent.log().slice(-20).map((line) => JSON.stringify(line)).join("\n");
    throw new Error(`${(error as Error).message}, but ${printed}\n${tail}`);
  }
}

function count(agent: RealAgent, event: string): number {
  return agent.log().filter((line) => line.event === event).length;
}

test(
  "an entry that never expires is named in --check, and tried on (nats-server#3653)",
  async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    // The only way to an entry that outlives the bucket's TTL here: one that says so itself.
    await admin.jsm.streams.add({
      name: "KV_leases",
      subjects: ["$KV.leases.>"],
      max_msgs_per_subject: 1,
      max_age: TTL_MS * 1e6,
      duplicate_window: TTL_MS * 1e6,
      allow_rollup_hdrs: true,
      deny_delete: true,
      discard: DiscardPolicy.New,
      storage: StorageType.File,
      allow_msg_ttl: true,
    });
    const forever = headers();
    forever.set("Nats-TTL", "never");
    await admin.nc.request("$KV.leases.one", "ghost", { headers: forever, timeout: 5_000 });
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
    agent.makeStore("one");
    const client = await agent.client();
    const asked = performance.now();
    const { error } = await refusal(client.call("guard", { store: "one" }));
    expect(error.holder?.node).toBe("ghost");
    const line = await checkSays(agent, /stuck: .*one/);
    // Well past TTL and grace, and not before.
    expect(performance.now() - asked).toBeGreaterThan(2 * TTL_MS);
    expect(line).toContain("unhealthy");
    const { status } = await runClient(agent, ["--check"]);
    expect(status).toBe(1);
    // Still trying: as soon as it is gone, it is ours, and all is well.
    const deletion = headers();
    deletion.set("KV-Operation", "DEL");
    await admin.nc.request("$KV.leases.one", new Uint8Array(0), {
      headers: deletion,
      timeout: 5_000,
    });
    await client.call("guard", { store: "one", wait_ms: 20_000, wait_lease: true });
    expect(await checkSays(agent, /^healthy/)).not.toContain("stuck");
  },
  TEST_MS,
);

test(
  "a fleet locked out again and again keeps trying, says so and recovers (nats.node#532, #533)",
  async () => {
    const users = (password: string) =>
      `authorization { users: [{ user: agent, password: ${password} }] }`;
    await using server = await NatsServer.start({ config: users("right") });
    const dir = mkdtempSync(join(tmpdir(), "fleet-"));
    reapDir(dir);
    writeFileSync(join(dir, "password"), "right\n");
    const flags = ["--user", "agent", "--password-file", join(dir, "password"), ...TTL_FLAGS];
    const fleet = await Promise.all(
      Array.from(
        { length: 6 },
        (_, i) => RealAgent.start({ node: `n${i}`, nats: server.url, flags }),
      ),
    );
    try {
      for (const agent of fleet) {
        agent.makeStore(agent.options.node);
      }
      const guardAll = () =>
        Promise.all(fleet.map(async (agent) => {
          const store = agent.options.node;
          await using client = await agent.client();
          await client.call("guard", { store, wait_ms: 20_000, wait_lease: true });
        }));
      await guardAll();
      for (let round = 0; round < 2; round++) {
        const refused = async () =>
          (await server.monitor("varz")).auth_required &&
            server.log().match(/[aA]uthentication error/g)
              ?.length || 0;
        const before = await refused();
        await server.reload(users("wrong"));
        // A client that gives up after two equal errors would be gone by now, six times over.
        await until(
          "each was refused four times",
          async () => await refused() >= before + 24,
          60_000,
        );
        for (const agent of fleet) {
          await checkSays(agent, /uthenti|uthori/);
        }
        await server.reload(users("right"));
        await guardAll();
        for (const agent of fleet) await checkSays(agent, /^healthy/);
      }
    } finally {
      for (const agent of fleet) await agent[Symbol.asyncDispose]();
    }
  },
  TEST_MS,
);

test(
  "no lease is lost in an election shorter than the TTL less its margin (consul#1162)",
  async () => {
    await using cluster = await NatsCluster.start();
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: cluster.urls.join(","),
      flags: ["--ttl", "30s"],
    });
    const client = await agent.client();
    const stores = Array.from({ length: 20 }, (_, i) => `s${i}`);
    const grants = await Promise.all(stores.map((store) => {
      agent.makeStore(store);
      return client.call("guard", { store, follow: true });
    }));
    for (let election = 0; election < 2; election++) {
      const leader = await cluster.leader("KV_leases");
      const before = agent.log().length;
      await leader.kill();
      const startMs = performance.now();
      await until("every hold is renewed by the new leader", () => {
        const renewed = agent.log().slice(before).filter(({ event }) => event === "renewed");
        return new Set(renewed.map(({ store }) => store)).size === stores.length;
      }, 60_000);
      expect(performance.now() - startMs).toBeLessThan(29_400);
      for (const { token, store, epoch } of grants) {
        expect(await client.call("verify", { token, store })).toMatchObject({ epoch });
      }
      expect(count(agent, "lost")).toBe(0);
      expect(count(agent, "grant_lost")).toBe(0);
      await leader.restart();
      await cluster.healthy();
    }
  },
  TEST_MS,
);

test(
  "a lease whose grant did not finish in a drain ages out, and owes the next holder a grace (kubernetes#139991)",
  async () => {
    await using server = await NatsServer.start();
    const flags = [...TTL_FLAGS, "--drain", "100ms"];
    await using leaving = await RealAgent.start({ node: "leaving", nats: server.url, flags });
    await using staying = await RealAgent.start({ node: "staying", nats: server.url, flags });
    for (const agent of [leaving, staying]) agent.makeStore("one");
    await (await leaving.client()).call("guard", { store: "one" });
    const client = await staying.client();
    const waiting = client.call("guard", { store: "one", wait_ms: 30_000, wait_lease: true });
    await staying.logged("foreign", { store: "one" });
    expect(await leaving.end("SIGTERM")).toBe(0);
    expect(leaving.log().find(({ event }) => event === "drained")?.remaining).toBe(1);
    const { tenures } = await client.call("history", { store: "one" });
    expect(tenures[0]).toMatchObject({ node: "leaving" });
    expect(tenures[0].released_at).toBeUndefined();
    await waiting;
    expect(await staying.logged("grace", { store: "one" })).toBeDefined();
  },
  TEST_MS,
);

describe.concurrent("renewals that fail (kubernetes#82960, vault#2319)", () => {
  test("--check and /readyz fail while the connection is up and writes are refused", async () => {
    const users = (deny: string) =>
      `authorization { users: [{ user: agent, password: pw, permissions: { publish: { allow: ">", ` +
      `deny: [${deny}] } } }] }`;
    await using server = await NatsServer.start({ config: users("") });
    const dir = mkdtempSync(join(tmpdir(), "denied-"));
    reapDir(dir);
    writeFileSync(join(dir, "password"), "pw\n");
    const port = await freePort();
    const page = async (path: string) => (await fetch(`http://127.0.0.1:${port}/${path}`)).status;
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: [
        ...TTL_FLAGS,
        ...["--user", "agent", "--password-file", join(dir, "password")],
        ...["--http", `127.0.0.1:${port}`],
      ],
    });
    agent.makeStore("one");
    const client = await agent.client();
    await client.call("guard", { store: "one" });
    expect((await runClient(agent, ["--check"])).status).toBe(0);
    await server.reload(users('"$KV.leases.>"'));
    await until("held is false", async () => !(await client.call("held", { store: "one" })).held);
    const line = await checkSays(agent, /writes: .*store one/);
    expect(line).toStartWith("unhealthy");
    expect((await runClient(agent, ["--check"])).status).toBe(1);
    const { coordinator } = await client.call("status", {});
    expect(coordinator.connected).toBe(true);
    expect([await page("readyz"), await page("healthz")]).toEqual([503, 200]);
    await server.reload(users(""));
    await checkSays(agent, /^healthy/);
    expect(await page("readyz")).toBe(200);
  }, TEST_MS);

  test("the watchdog is not fed by an agent that stands still, and is in an outage", async () => {
    await using server = await NatsServer.start();
    const dir = mkdtempSync(join(tmpdir(), "watchdog-"));
    reapDir(dir);
    const path = join(dir, "notify");
    // What systemd does: it listens, and counts what comes.
    await using manager = python(
      `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print("bound")
s.settimeout(3)
while True:
    try:
        for line in s.recv(4096).decode().split("\\n"):
            if line.startswith(("READY", "WATCHDOG")): print(line)
    except socket.timeout:
        print("silence")
`,
      path,
    );
    expect(await manager.line()).toBe("bound");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: TTL_FLAGS,
      env: { NOTIFY_SOCKET: path, WATCHDOG_USEC: "3000000" },
    });
    agent.makeStore("one");
    await (await agent.client()).call("guard", { store: "one" });
    const next = async (wanted: string) => {
      while (await manager.line() !== wanted);
    };
    await next("READY=1");
    await next("WATCHDOG=1");
    // Frozen: an outage, which a restart would not mend.
    server.freeze();
    await agent.logged("lost", { store: "one" });
    for (let i = 0; i < 3; i++) expect(await manager.line()).toBe("WATCHDOG=1");
    server.thaw();
    agent.signal("SIGSTOP");
    await next("silence");
    agent.signal("SIGCONT");
    await next("WATCHDOG=1");
  }, TEST_MS);
});

test("every node can tell who holds a store, or that it is free (litefs#76)", async () => {
  await using server = await NatsServer.start();
  const start = (node: string) =>
    RealAgent.start({
      node,
      nats: server.url,
      flags: [...TTL_FLAGS, "--address", `http://${node}.example`],
    });
  await using alpha = await start("alpha");
  await using beta = await start("beta");
  await using gamma = await start("gamma");
  const agents = [alpha, beta, gamma];
  const clients = await Promise.all(agents.map((agent) => agent.client()));
  const ask = () => Promise.all(clients.map((client) => client.call("holder", { store: "one" })));
  expect(new Set((await ask()).map(({ state }) => state))).toEqual(new Set(["free"]));
  alpha.makeStore("one");
  const { epoch } = await clients[0].call("guard", { store: "one" });
  const held = await ask();
  expect(held.map(({ state }) => state)).toEqual(["self", "other", "other"]);
  for (const { node, address, epoch: theirs } of held) {
    expect([node, address, theirs]).toEqual(["alpha", "http://alpha.example", epoch]);
  }
  // By command, too, and by one that never asked to hold it.
  expect(JSON.parse((await runClient(gamma, ["--json", "holder", "one"])).stdout))
    .toMatchObject({ node: "alpha", state: "other" });
  await alpha.end("SIGKILL");
  // Nobody wants it, so nobody takes it: it is free once it has aged out, and nobody says otherwise.
  await until("beta and gamma say that it is free", async () => {
    const now = await Promise.all(
      clients.slice(1).map((client) => client.call("holder", { store: "one" })),
    );
    return now.every(({ state, node }) => state === "free" && node === null);
  });
}, TEST_MS);

describe.concurrent("renewal after a single failure (iceberg#2034)", () => {
  test.each<[string, (server: NatsServer, admin: Admin) => Promise<void> | void]>([
    ["a server that hangs for a moment", async (server) => {
      server.freeze();
      await Bun.sleep(300); // The failure itself, not a wait for something.
      server.thaw();
    }],
    ["a server that is killed and back", async (server) => {
      await server.kill();
      await server.restart();
    }],
    ["a tenure record that is garbage", async (_server, admin) => {
      await admin.put("leases-tenures", "one", "{nonsense");
    }],
    ["a message that is no answer, on every inbox", async (_server, admin) => {
      const inbox = await inboxOf(admin);
      for (const data of ["", "{", "null", "[]", '{"seq":"x"}', '{"error":7}', '{"error":{}}']) {
        for (let id = 1; id < 100; id++) admin.nc.publish(`${inbox}.${id}`, data);
      }
      await admin.nc.flush();
    }],
    ["a key that is no store", async (_server, admin) => {
      await admin.put("leases", "not-a-store-_--", new Uint8Array([0, 255, 10]));
      await admin.put("leases-tenures", "-x", '{"node":1}');
    }],
  ])("goes on after %s", async (_what, fail) => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--ttl", "6s"],
    });
    agent.makeStore("one");
    const client = await agent.client();
    const { token, epoch } = await client.call("guard", { store: "one" });
    await fail(server, admin);
    const before = count(agent, "renewed");
    await until("three more renewals", () => count(agent, "renewed") >= before + 3, 30_000);
    expect(await client.call("verify", { token, store: "one" })).toMatchObject({ epoch });
    expect(count(agent, "lost")).toBe(0);
    await checkSays(agent, /^healthy/);
  }, TEST_MS);
});

/** The subject on which the agent takes its answers, learnt from the next renewal's reply. */
async function inboxOf(admin: Admin): Promise<string> {
  const subscription = admin.nc.subscribe("$KV.leases.>", { max: 1 });
  for await (const { reply } of subscription) return reply!.slice(0, reply!.lastIndexOf("."));
  throw new Error("no renewal was seen");
}
