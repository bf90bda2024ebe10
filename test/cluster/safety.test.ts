/**
 * A coordinator that is unsafe, wrong or not there: real agents against real servers set up so. What
 * must not be used ends the agent with 78 before READY; where waiting can help it waits, says in its
 * log and in `--check` what is wrong, refuses, does not spin, and goes on when it is put right.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { DiscardPolicy, StorageType, type StreamConfig } from "@nats-io/jetstream";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Admin } from "../support/admin.ts";
import { makeAuthority } from "../support/certificate.ts";
import { NatsCluster, NatsServer, natsServerPath } from "../support/nats.ts";
import { RealAgent, type RealAgentOptions, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";
import { cpuMs } from "./cpu.ts";

const TEST_MS = 120_000;

/**
 * An agent that has nothing to do but to wait may use so much of a processor: a dial a second is a tenth
 * of that here, a loop all of one.
 */
const IDLE_CPU = 0.1;
/** Several tries of everything that is tried again each second, and two of what is each 5 s. */
const IDLE_MS = 10_000;

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "safety-"));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function file(name: string, content: string): string {
  const path = join(dir, name);
  writeFileSync(path, content, { mode: 0o600 });
  return path;
}

/** Starts an agent that must end by itself before READY; its last words. */
async function refusedStart(options: RealAgentOptions): Promise<string> {
  await using agent = await RealAgent.start({ ...options, awaitReady: false });
  expect(await agent.exited()).toBe(78);
  const lines = agent.log();
  expect(lines.some(({ event }) => event === "ready")).toBe(false);
  const failed = lines.filter(({ event }) => event === "failed");
  expect(failed).toHaveLength(1);
  expect(failed[0]).toMatchObject({ level: "error", exit: 78 });
  return failed[0].message;
}

/** A bucket that somebody made by hand, with a TTL of 6 s unless `config` says otherwise. */
async function makeBucket(url: string, config: Partial<StreamConfig>): Promise<void> {
  await using admin = await Admin.connect(url);
  await admin.jsm.streams.add({
    name: "KV_leases",
    subjects: ["$KV.leases.>"],
    max_msgs_per_subject: 1,
    max_age: 6e9,
    duplicate_window: 6e9,
    allow_rollup_hdrs: true,
    deny_delete: true,
    discard: DiscardPolicy.New,
    storage: StorageType.File,
    num_replicas: 1,
    ...config,
  });
}

/** A way to a server on which it calls itself another version. */
async function callingItself(
  version: string,
  server: NatsServer,
): Promise<Disposable & { url: string }> {
  const proxy = createServer((socket) => {
    const onward = connect(server.port, "127.0.0.1");
    // Newer servers greet again once they know who it is.
    onward.on("data", (chunk) => {
      const told = chunk.toString("latin1");
      socket.write(told.replace(/^(INFO .*"version":")[^"]+/gm, `$1${version}`), "latin1");
    });
    socket.pipe(onward);
    for (const end of [socket, onward]) {
      end.on("error", () => {});
      end.on("close", () => (socket.destroy(), onward.destroy()));
    }
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const { port } = proxy.address() as { port: number };
  return { url: `nats://127.0.0.1:${port}`, [Symbol.dispose]: () => void proxy.close() };
}

/** Asserts that the agent guards, and that log and `--check` carry the warning, once. */
async function warnsOf(agent: RealAgent, check: string, words: RegExp): Promise<void> {
  agent.makeStore("one");
  const client = await agent.client();
  const { token } = await client.call("guard", { store: "one", wait_ms: 10_000 });
  await client.call("release", { token });
  const warned = agent.log().filter((line) =>
    line.event === "coordinator_warning" && line.check === check
  );
  expect(warned.map(({ level }) => level)).toEqual(["warn"]);
  expect(warned[0].message).toMatch(words);
  const { status, stdout } = await runClient(agent, ["--check"]);
  expect(status).toBe(0);
  expect(stdout.trim().split("\n")).toHaveLength(1);
  expect(stdout).toMatch(words);
  await isIdle(agent);
  expect(agent.log().filter(({ check: of }) => of === check)).toEqual(warned);
}

/**
 * Asserts that the agent becomes ready all the same, refuses as `unavailable`, names what is wrong in
 * the log (once) and in `--check`, and uses little of the processor meanwhile.
 */
async function waitsAndSays(agent: RealAgent, words: RegExp): Promise<void> {
  expect((await agent.logged("ready")).coordinator).toBe(false);
  agent.makeStore("one");
  const client = await agent.client();
  const { kind, error } = await refusal(client.call("guard", { store: "one", wait_ms: 5_000 }));
  expect(kind).toBe("unavailable");
  expect(error.message).toMatch(words);
  const { status, stdout } = await runClient(agent, ["--check"]);
  expect(status).toBe(1);
  expect(stdout).toMatch(words);
  expect(stdout.trim().split("\n")).toHaveLength(1);
  const problems = () =>
    agent.log().filter((line) => line.event === "problem" && words.test(line.message));
  expect(problems().length).toBeGreaterThan(0);
  expect(problems()[0].level).toBe("error");
  await isIdle(agent);
  // Told, not repeated at each try.
  expect(problems().length).toBeLessThan(4);
}

/** Asserts that an agent that waits for somebody to put things right is no burden meanwhile. */
async function isIdle(agent: RealAgent): Promise<void> {
  const startCpuMs = cpuMs(agent.pid);
  const startMs = performance.now();
  await until("it has waited for a while", () => performance.now() - startMs > IDLE_MS);
  const tookMs = performance.now() - startMs;
  expect((cpuMs(agent.pid) - startCpuMs) / tookMs).toBeLessThan(IDLE_CPU);
}

/** Asserts that it is well now, without a restart. */
async function recovers(agent: RealAgent): Promise<void> {
  const client = await agent.client();
  await until("a guard is granted", async () => {
    const granted = await client.call("guard", { store: "one", wait_ms: 1_000, wait_lease: true })
      .catch(() => null);
    if (granted !== null) await client.call("release", { token: granted.token });
    return granted !== null;
  }, 30_000);
  const check = await runClient(agent, ["--check"]);
  expect(check.stdout).toStartWith("healthy");
  expect(check.status).toBe(0);
}

describe.concurrent("server versions", () => {
  test(
    "nats-server 2.9.10 ends the agent with 78 before READY, naming version and fault",
    async () => {
      await using server = await NatsServer.start({ program: natsServerPath("bookworm") });
      const message = await refusedStart({ node: "alpha", nats: server.url });
      expect(message).toContain("2.9.10");
      expect(message).toContain("nats-server#4320");
      expect(message).toContain("--allow-unsafe-server");
    },
    TEST_MS,
  );

  test("nats-server 2.9.10 is used with --allow-unsafe-server, and warned about", async () => {
    await using server = await NatsServer.start({ program: natsServerPath("bookworm") });
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--allow-unsafe-server"],
    });
    await warnsOf(agent, "server_version", /2\.9\.10.*accepted/);
  }, TEST_MS);

  test("nats-server 2.10.27 is warned about in log and --check", async () => {
    await using server = await NatsServer.start({ program: natsServerPath("trixie") });
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
    await warnsOf(agent, "server_version", /2\.10\.27 can lose acknowledged writes/);
  }, TEST_MS);

  // Which Debian does not have: a real server that only says of itself what these would.
  test.each([
    ["2.9.20", /2\.9\.20 .*nats-server#4320/],
    ["2.10.19", /2\.10\.19 judges compare-and-set writes of R1 buckets wrongly/],
  ])(
    "nats-server %s ends the agent with 78 before READY, naming the fault",
    async (version, words) => {
      await using server = await NatsServer.start();
      using older = await callingItself(version, server);
      const message = await refusedStart({ node: "alpha", nats: older.url });
      expect(message).toMatch(words);
      expect(message).toContain("--allow-unsafe-server");
    },
    TEST_MS,
  );

  test.each(["2.10.18", "2.10.20", "2.12.13", "2.14.3"])(
    "nats-server %s is warned about in log and --check",
    async (version) => {
      await using server = await NatsServer.start();
      using older = await callingItself(version, server);
      await using agent = await RealAgent.start({ node: "alpha", nats: older.url });
      await warnsOf(
        agent,
        "server_version",
        /can lose acknowledged writes: upgrade it to 2\.12\.14/,
      );
      expect((await runClient(agent, ["--check"])).stdout).toContain(`nats-server ${version} can`);
    },
    TEST_MS,
  );

  test.each(["2.12.14", "2.14.4"])("nats-server %s is neither", async (version) => {
    await using server = await NatsServer.start();
    using newer = await callingItself(version, server);
    await using agent = await RealAgent.start({ node: "alpha", nats: newer.url });
    expect((await agent.logged("coordinator_ready")).version).toBe(version);
    expect((await runClient(agent, ["--check"])).stdout).toBe("healthy: alpha holds 0 stores\n");
  }, TEST_MS);
});

describe.concurrent("the bucket", () => {
  test("another TTL than --ttl ends the agent with 78, naming both", async () => {
    await using server = await NatsServer.start();
    await makeBucket(server.url, {});
    const message = await refusedStart({ node: "a", nats: server.url, flags: ["--ttl", "9s"] });
    expect(message).toContain("TTL of 6s");
    expect(message).toContain("9s");
  }, TEST_MS);

  test(
    "a TTL that changes under a running agent stops it from granting until it is put right",
    async () => {
      await using server = await NatsServer.start();
      await makeBucket(server.url, {});
      await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
      agent.makeStore("one");
      const client = await agent.client();
      const { token } = await client.call("guard", { store: "one" });
      await client.call("release", { token });
      await using admin = await Admin.connect(server.url);
      await admin.jsm.streams.update("KV_leases", { max_age: 8e9 });
      // The bucket is looked at every minute.
      await agent.logged("problem", { check: "bucket" }).catch(() => {});
      const problem = await until(
        "the drift is seen",
        () =>
          agent.log().find((line) => line.event === "problem" && /TTL of 8s/.test(line.message)),
        75_000,
      );
      expect(problem.message).toContain("6s");
      expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("misconfigured");
      expect((await client.call("held", { store: "one" })).held).toBe(false);
      const { status, stdout } = await runClient(agent, ["--check"]);
      expect([status, stdout]).toEqual([1, expect.stringMatching(/TTL of 8s/)]);
      await isIdle(agent);
      await admin.jsm.streams.update("KV_leases", { max_age: 6e9 });
      await recovers(agent);
    },
    TEST_MS,
  );

  test("a bucket in memory is warned about", async () => {
    await using server = await NatsServer.start();
    await makeBucket(server.url, { storage: StorageType.Memory });
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
    await warnsOf(agent, "storage", /memory/);
  }, TEST_MS);

  test("a TTL below 3 s is warned about", async () => {
    await using server = await NatsServer.start();
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--ttl", "2s"],
    });
    await warnsOf(agent, "short_ttl", /TTL of 2s/);
  }, TEST_MS);

  test("one replica in a cluster is warned about, and the default there is three", async () => {
    await using cluster = await NatsCluster.start();
    await makeBucket(cluster.urls[0], {});
    {
      await using agent = await RealAgent.start({ node: "alpha", nats: cluster.urls.join(",") });
      await warnsOf(agent, "replicas", /one replica in a cluster/);
    }
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: cluster.urls.join(","),
      flags: ["--bucket", "other"],
    });
    await using admin = await Admin.connect(cluster.urls[0]);
    const { config } = await admin.jsm.streams.info("KV_other");
    expect(config.num_replicas).toBe(3);
    expect((await runClient(agent, ["--check"])).stdout).not.toContain("replica");
  }, TEST_MS);

  test("servers that do not sync each write are warned about where they tell", async () => {
    // Shown to every account here; docs/operations.md has it for the agents' alone.
    await using server = await NatsServer.start({
      config: `accounts {
        SYS { exports: [{ service: "$SYS.REQ.SERVER.PING.JSZ", response: stream }] }
        APP { jetstream: enabled, users: [{ user: agent, password: pw }]
          imports: [{ service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ" } }] } }
        system_account: SYS`,
    });
    const password = file("sync-password", "pw\n");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--user", "agent", "--password-file", password],
    });
    await agent.logged("coordinator_warning", { check: "sync_interval" });
    await warnsOf(agent, "sync_interval", /n1 \(every 120s\).*sync_interval: always/);
  }, TEST_MS);

  test("a full bucket is refused as unavailable, and --check fails and says so", async () => {
    await using server = await NatsServer.start();
    await makeBucket(server.url, { max_bytes: 300, max_age: 60e9, duplicate_window: 60e9 });
    await using admin = await Admin.connect(server.url);
    await admin.put("leases", "filler", "x".repeat(150));
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
    expect(await agent.logged("coordinator_warning", { check: "limits" })).toBeDefined();
    agent.makeStore("one");
    const client = await agent.client();
    const { kind, error } = await refusal(client.call("guard", { store: "one", wait_ms: 3_000 }));
    expect(kind).toBe("unavailable");
    expect(error.message).toMatch(/maximum bytes exceeded/);
    const check = await until("--check fails", async () => {
      const check = await runClient(agent, ["--check"]);
      return check.status === 1 && check;
    });
    expect(check.stdout).toMatch(/maximum bytes exceeded/);
    const told = () =>
      agent.log().filter((line) =>
        line.event === "problem" && /maximum bytes exceeded/.test(line.message)
      );
    await until("the log says so", () => told().length > 0);
    await isIdle(agent);
    expect(told().length).toBeLessThan(4);
    await admin.jsm.streams.update("KV_leases", { max_bytes: -1 });
    await recovers(agent);
  }, TEST_MS);
});

describe.concurrent("a coordinator that cannot be used now", () => {
  test("JetStream disabled", async () => {
    await using server = await NatsServer.start({ jetstream: false });
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
    await waitsAndSays(agent, /JetStream.*not enabled/);
    await server.restart(`jetstream { store_dir: "${server.dir}/js" }`);
    await recovers(agent);
  }, TEST_MS);

  test("an account without permission", async () => {
    const config = (permissions: string) =>
      `authorization { users: [{ user: agent, password: pw ${permissions} }] }`;
    await using server = await NatsServer.start({
      config: config(`, permissions: { publish: { allow: ["x"] } }`),
    });
    const password = file("permission", "pw\n");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--user", "agent", "--password-file", password],
    });
    await waitsAndSays(agent, /cannot be used as needed.*\$JS\.API\.STREAM\.INFO/);
    await server.reload(config(""));
    await recovers(agent);
  }, TEST_MS);

  test("an account without JetStream", async () => {
    const config = (jetstream: string) =>
      `accounts { APP { ${jetstream} users: [{ user: agent, password: pw }] } }`;
    await using server = await NatsServer.start({ config: config("") });
    const password = file("account", "pw\n");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--user", "agent", "--password-file", password],
    });
    await waitsAndSays(agent, /JetStream.*not enabled/);
    await server.restart(config("jetstream: enabled,"));
    await recovers(agent);
  }, TEST_MS);

  test("wrong credentials", async () => {
    await using server = await NatsServer.start({
      config: "authorization { users: [{ user: agent, password: right }] }",
    });
    const password = file("wrong-password", "wrong\n");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--user", "agent", "--password-file", password],
    });
    await waitsAndSays(agent, /[Aa]uthenti|[Aa]uthori/);
    file("wrong-password", "right\n");
    agent.signal("SIGHUP");
    await recovers(agent);
  }, TEST_MS);

  test("a credentials file that is not there", async () => {
    await using server = await NatsServer.start({
      config: "authorization { users: [{ user: agent, password: right }] }",
    });
    const path = join(dir, "comes-later");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--user", "agent", "--password-file", path],
    });
    await waitsAndSays(agent, /comes-later/);
    file("comes-later", "right\n");
    await recovers(agent);
  }, TEST_MS);

  test("a server that another authority vouches for", async () => {
    const authority = makeAuthority("the right one");
    const { cert, key } = authority.issue("server");
    await using server = await NatsServer.start({
      config: `tls { cert_file: "${file("ca-server.pem", cert)}", key_file: "${
        file("ca-server.key", key)
      }" }`,
    });
    const ca = file("ca.pem", makeAuthority("another one").cert);
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url.replace("nats:", "tls:"),
      flags: ["--tls-ca", ca],
    });
    await waitsAndSays(agent, /certificate|verif/i);
    file("ca.pem", authority.cert);
    agent.signal("SIGHUP");
    await recovers(agent);
  }, TEST_MS);

  test("a server whose name does not resolve", async () => {
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: "nats://no-such-server.invalid:4222",
    });
    await waitsAndSays(agent, /no-such-server\.invalid.*does not resolve/);
    expect((await runClient(agent, ["--check"])).stdout).toContain("see to this host's DNS");
  }, TEST_MS);

  test.skipIf(process.getuid!() !== 0)("a server whose name resolves only later", async () => {
    await using server = await NatsServer.start();
    const hosts = file("hosts", "127.0.0.1 localhost\n");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: `nats://lease-server.test:${server.port}`,
      // It alone sees this file in the place of the host's.
      wrap: ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts],
    });
    await waitsAndSays(agent, /lease-server\.test:\d+: its name does not resolve/);
    file("hosts", "127.0.0.1 localhost lease-server.test\n");
    await recovers(agent);
  }, TEST_MS);

  test("a server that is not there", async () => {
    await using server = await NatsServer.start();
    await server.kill();
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
    await waitsAndSays(agent, new RegExp(`127\\.0\\.0\\.1:${server.port}`));
    await server.restart();
    await recovers(agent);
  }, TEST_MS);
});
