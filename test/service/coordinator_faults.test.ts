/**
 * What log and `--check` of a real agent tell while its coordinator fails: each transition once, one
 * line for each reason, and never well while nothing would be granted.
 */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { Admin } from "../support/admin.ts";
import { NatsCluster, NatsServer } from "../support/nats.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { Operator } from "../support/operator.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 90_000;

/** What a user of the server may not do. */
interface Denied {
  readonly publish?: readonly string[];
  readonly subscribe?: readonly string[];
}

function config({ publish = [], subscribe = [] }: Denied = {}): string {
  const permissions = (deny: readonly string[]) =>
    `{ allow: [">"], deny: ${JSON.stringify(deny)} }`;
  return `authorization { users: [{ user: agent, password: pw, permissions: {
    publish: ${permissions(publish)}, subscribe: ${permissions(subscribe)} } }
    { user: admin, password: pw }] }`;
}

async function withPassword(denied: Denied = {}) {
  const server = await NatsServer.start({ config: config(denied) });
  const password = join(server.dir, "password");
  await Bun.write(password, "pw\n");
  return { server, flags: ["--user", "agent", "--password-file", password] };
}

const problems = (agent: RealAgent, check: string) =>
  agent.log().filter((line) => line.event === "problem" && line.check === check);

async function check(agent: RealAgent): Promise<string> {
  return (await runClient(agent, ["--check"])).stdout.trim();
}

/** Resolves when it is well, and says so. */
async function isWell(agent: RealAgent): Promise<void> {
  await until("it is well", async () => (await check(agent)).startsWith("healthy"), 30_000);
}

/** How often the server has denied the subject. */
const denials = (server: NatsServer, subject: string) =>
  server.log().split("\n").filter((line) => line.includes("Violation") && line.includes(subject))
    .length;

describe.concurrent("what is told of a coordinator that fails", () => {
  test(
    "consumers that are denied: one warning that names the permission, and its end",
    async () => {
      const { server, flags } = await withPassword({ publish: ["$JS.API.CONSUMER.>"] });
      await using _ = server;
      await using agent = await RealAgent.start({ node: "alpha", nats: server.url, flags });
      agent.makeStore("one");
      await (await agent.client()).call("guard", { store: "one" });
      // Each try has another name for its consumer.
      await until("it tried again", () => denials(server, "CONSUMER.CREATE") >= 3, 60_000);
      const told = () => agent.log().filter((line) => line.check === "tenure_watch");
      expect(told().map(({ event }) => event)).toEqual(["coordinator_warning"]);
      expect(told()[0]!.message).toMatch(/publish to \$JS\.API\.CONSUMER\.CREATE\.>; allow it/);
      expect(agent.log().filter(({ event }) => event === "coordinator_ready")).toHaveLength(1);
      const line = await check(agent);
      expect(line).toStartWith("healthy");
      expect(line).toContain("publish to $JS.API.CONSUMER.CREATE.>; allow it");
      await server.reload(config());
      await agent.logged("coordinator_warning_over", { check: "tenure_watch" });
      expect(await check(agent)).toBe("healthy: alpha holds 1 store");
    },
    TEST_MS,
  );

  test("an inbox that is denied: one problem that names the permission", async () => {
    const { server, flags } = await withPassword({ subscribe: ["_INBOX.>"] });
    await using _ = server;
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url, flags });
    await until("it tried again", () => denials(server, "_INBOX") >= 3, 60_000);
    expect(problems(agent, "coordinator").map(({ message }) => message)).toEqual([
      expect.stringContaining("does not let this agent's user subscribe to _INBOX.>; allow it"),
    ]);
    expect(await check(agent)).toMatch(/^unhealthy; coordinator: .*subscribe to _INBOX\.>; allow/);
    await server.reload(config());
    await isWell(agent);
  }, TEST_MS);

  test("an inbox that is taken away from an agent at work", async () => {
    const { server, flags } = await withPassword();
    await using _ = server;
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url, flags });
    agent.makeStore("one");
    const client = await agent.client();
    await client.call("guard", { store: "one" });
    await server.reload(config({ subscribe: ["_INBOX.>"] }));
    await until("it is told", () => problems(agent, "coordinator").length > 0);
    const dialled = async () => (await server.monitor("varz")).total_connections;
    const before = await dialled();
    await until("it dialled again and again", async () => await dialled() > before + 3, 30_000);
    expect(agent.log().filter(({ event }) => event === "problem_over")).toEqual([]);
    for (const { message } of problems(agent, "coordinator")) expect(message).toContain("_INBOX.>");
    expect(problems(agent, "coordinator").length).toBeLessThan(3);
    expect(await check(agent)).toMatch(/^unhealthy; coordinator: .*_INBOX\.>/);
    await server.reload(config());
    await isWell(agent);
  }, TEST_MS);

  test(
    "tenures that cannot be written: not well for a moment, however often the lease is renewed",
    async () => {
      const full = async (server: NatsServer, maxMessages: number) => {
        await using admin = await Admin.connect(server.url);
        await admin.jsm.streams.update("KV_leases-tenures", { max_msgs: maxMessages });
      };
      await using server = await NatsServer.start();
      await using agent = await RealAgent.start({
        node: "alpha",
        nats: server.url,
        flags: ["--ttl", "3s"],
      });
      {
        await using admin = await Admin.connect(server.url);
        await admin.put("leases-tenures", "filler", "x");
      }
      await full(server, 1);
      agent.makeStore("one");
      const client = await agent.client();
      expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("unavailable");
      await until("it is told", () => problems(agent, "writes").length > 0);
      const renewed = () => agent.log().filter(({ event }) => event === "renewed").length;
      const before = renewed();
      await until("the lease was renewed thrice", async () => {
        expect(await check(agent)).toMatch(/^unhealthy; writes: .*maximum messages exceeded/);
        return renewed() >= before + 3;
      });
      expect(problems(agent, "writes")).toHaveLength(1);
      await full(server, -1);
      await client.call("guard", { store: "one", wait_ms: 10_000, wait_lease: true });
      expect(await check(agent)).toStartWith("healthy: alpha holds 1 store");
    },
    TEST_MS,
  );

  test("tenures that are denied: the same", async () => {
    const { server, flags } = await withPassword();
    await using _ = server;
    const ttl = ["--ttl", "3s"];
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: [...flags, ...ttl],
    });
    agent.makeStore("one");
    await server.reload(config({ publish: ["$KV.leases-tenures.>"] }));
    const client = await agent.client();
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("unavailable");
    await until("it is told", () => problems(agent, "writes").length > 0);
    const renewed = () => agent.log().filter(({ event }) => event === "renewed").length;
    const before = renewed();
    await until("the lease was renewed thrice", async () => {
      expect(await check(agent)).toMatch(/^unhealthy; writes: .*\$KV\.leases-tenures/);
      return renewed() >= before + 3;
    });
    expect(problems(agent, "writes")).toHaveLength(1);
    expect(problems(agent, "permissions")).toHaveLength(1);
    await server.reload(config());
    await isWell(agent);
  }, TEST_MS);

  test(
    "a server that is killed, and is back: each told once, with the newest reason in --check",
    async () => {
      await using server = await NatsServer.start();
      await using agent = await RealAgent.start({
        node: "alpha",
        nats: server.url,
        flags: ["--ttl", "3s"],
      });
      agent.makeStore("one");
      await (await agent.client()).call("guard", { store: "one" });
      await server.kill();
      // Renewals have long been due by then.
      await agent.logged("lost", { store: "one" });
      expect(await check(agent)).toMatch(
        /^unhealthy; coordinator: [^;]*connection refused[^;]*;?[^;]*$/,
      );
      const told = agent.log().filter(({ event }) => event === "problem");
      expect(told.map(({ message }) => message)).toEqual([
        expect.stringMatching(
          /^Connection to the coordinator lost: nats:\S+ closed the connection/,
        ),
      ]);
      await server.restart();
      await isWell(agent);
      const over = agent.log().filter(({ event }) => /^problem_over|coordinator_ready/.test(event));
      // Once at the start, and once now.
      expect(over.map(({ event }) => event)).toEqual(["coordinator_ready", "problem_over"]);
    },
    TEST_MS,
  );

  test("a majority that is gone, though nobody asks for a guard", async () => {
    await using cluster = await NatsCluster.start();
    await using agent = await RealAgent.start({ node: "alpha", nats: cluster.urls.join(",") });
    await isWell(agent);
    const [first, second] = cluster.servers;
    await Promise.all([first!.kill(), second!.kill()]);
    // Those that are left know only after a while, and an agent of theirs looks each minute.
    await until(
      "it is told",
      () => problems(agent, "coordinator").some(({ message }) => /has no leader/.test(message)),
      100_000,
    );
    expect(await check(agent)).toMatch(/^unhealthy; coordinator: /);
    await Promise.all([first!.restart(), second!.restart()].map((each) => each.catch(() => {})));
    await cluster.healthy();
    await isWell(agent);
  }, 2 * TEST_MS);

  test("credentials that expire: the last line says so", async () => {
    const operator = new Operator();
    await using server = await NatsServer.start({ config: operator.config() });
    const creds = join(server.dir, "user.creds");
    await Bun.write(creds, operator.creds(4));
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--creds", creds],
    });
    await until("it is told", () => problems(agent, "coordinator").length > 0);
    const dialled = async () => (await server.monitor("varz")).total_connections;
    const before = await dialled();
    await until("it dialled again and again", async () => await dialled() > before + 5, 30_000);
    const last = agent.log().filter(({ level }) => level !== "debug").at(-1)!;
    expect([last.event, last.message]).toEqual([
      "problem",
      expect.stringContaining(`put the right ones into ${creds}`),
    ]);
    expect(problems(agent, "coordinator").length).toBeLessThan(3);
    await Bun.write(creds, operator.creds());
    await isWell(agent);
  }, TEST_MS);

  test("a shutdown that its grants outlast is no problem of the coordinator", async () => {
    await using server = await NatsServer.start();
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--ttl", "3s", "--drain", "1s"],
    });
    const client = await agent.client();
    for (const store of ["one", "two"]) {
      agent.makeStore(store);
      await client.call("guard", { store });
    }
    expect(await agent.end("SIGTERM")).toBe(0);
    expect(agent.log().filter(({ event }) => event === "drained")).toMatchObject([{
      remaining: 2,
    }]);
    expect(agent.log().filter(({ event }) => event.startsWith("problem"))).toEqual([]);
  }, TEST_MS);

  test.skipIf(noSmallDisk !== null)(
    "a disk that is full: named as the first suspect, by whoever writes and whoever waits",
    async () => {
      using disk = smallDisk(8 << 20);
      await using server = await NatsServer.start({
        jetstreamConfig: `store_dir: "${join(disk.path, "js")}"`,
      });
      const flags = ["--ttl", "3s"];
      await using holder = await RealAgent.start({ node: "alpha", nats: server.url, flags });
      await using other = await RealAgent.start({ node: "beta", nats: server.url, flags });
      for (const agent of [holder, other]) agent.makeStore("one");
      const client = await holder.client();
      const { token } = await client.call("guard", { store: "one" });
      const waiter = await other.client();
      expect((await refusal(waiter.call("guard", { store: "one" }))).kind).toBe("not_holder");
      disk.fill();
      // What is left of a page that the bucket has already is written yet.
      const message = await until("a write is not answered", async () => {
        try {
          await client.call("verify", { token, store: "one" });
          return null;
        } catch (error) {
          return (error as Error).message;
        }
      });
      expect(message).toContain("cannot be used (no answer");
      await until("the holder tells", () => problems(holder, "writes").length > 0);
      expect(await check(holder)).toMatch(/^unhealthy; writes: .*no answer.*disk is full/);
      await until("the other one tells", () => problems(other, "stuck").length > 0, 60_000);
      expect(await check(other)).toMatch(/^unhealthy; stuck: .*disk is full/);
      disk.empty();
      await server.restart();
      // Its lock stays until then.
      expect((await refusal(client.call("release", { token }))).kind).toBe("lost");
      // Both want it: one of them gets it.
      const guard = { store: "one", wait_ms: 30_000, wait_lease: true };
      await Promise.any([client, waiter].map((each) => each.call("guard", guard)));
      await isWell(holder);
      await isWell(other);
    },
    2 * TEST_MS,
  );

  test("messages that are too short: one problem that says what to raise", async () => {
    await using server = await NatsServer.start();
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--ttl", "3s"],
    });
    agent.makeStore("one");
    const client = await agent.client();
    await client.call("guard", { store: "one" });
    await server.reload("max_payload: 64");
    // Renewals are due by then: the server has ended the connection for them.
    await agent.logged("lost", { store: "one" });
    const dialled = async () => (await server.monitor("varz")).total_connections;
    const before = await dialled();
    await until("it dialled again and again", async () => await dialled() > before + 5, 30_000);
    expect(agent.log().filter(({ event }) => event === "problem_over")).toEqual([]);
    expect(problems(agent, "coordinator").length).toBeLessThan(4);
    expect(await check(agent)).toMatch(/^unhealthy; coordinator: .*64 bytes.*raise max_payload/);
    await server.reload("max_payload: 1MB");
    await isWell(agent);
  }, TEST_MS);

  test("reads that are denied: not told as writes that are", async () => {
    const { server, flags } = await withPassword();
    await using _ = server;
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url, flags });
    agent.makeStore("one");
    await server.reload(config({ publish: ["$JS.API.STREAM.MSG.GET.>"] }));
    const client = await agent.client();
    const { kind, error } = await refusal(client.call("guard", { store: "one" }));
    expect(kind).toBe("unavailable");
    expect(error.message).toContain("the coordinator cannot be used (");
    expect(error.message).not.toContain("reached");
    await until("it is told", () => problems(agent, "writes").length > 0);
    expect(await check(agent)).toMatch(
      /writes: the coordinator does not serve store one \(.*MSG\.GET/,
    );
    await server.reload(config());
    await isWell(agent);
  }, TEST_MS);
});
