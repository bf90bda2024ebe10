import { describe, expect, test } from "bun:test";
import { jetstream, type StreamConfig } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { nanos } from "@nats-io/transport-node";
import { inspectBuckets } from "../../src/nats/buckets.ts";
import { firstRevision, leasesConfig, tenuresConfig } from "../../src/nats/stream_config.ts";
import { value } from "../contract/coordinator.ts";
import { Admin } from "../support/admin.ts";
import { NatsCluster, NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 90_000;

async function makeLeases(admin: Admin, change: Partial<StreamConfig> = {}): Promise<void> {
  const config = leasesConfig("leases", { ttlMs: 15_000, replicas: 1, firstSeq: 1 });
  await admin.jsm.streams.add({ ...config, ...change });
}

/** A server that does not tell agents when somebody changes a bucket, an operator, and how to connect. */
async function quietServer() {
  const config = `authorization { users: [
    { user: admin, password: pw }
    { user: agent, password: pw, permissions: { subscribe: { allow: ["_INBOX.>"] } } } ] }`;
  const server = await NatsServer.start({ config });
  const passwordFile = `${server.dir}/password`;
  await Bun.write(passwordFile, "pw\n");
  const admin = await Admin.connect(server.url, { user: "admin", pass: "pw" });
  return {
    admin,
    options: { urls: [server.url], credentials: { user: "agent", passwordFile } },
    async [Symbol.asyncDispose]() {
      await admin.nc.close();
      await server.stop();
    },
  };
}

const checks = (subject: Subject) => subject.nats.warnings.map(({ check }) => check);

/** Servers of a cluster take a moment to tell each other where a bucket is: until then nobody answers. */
async function usable(subject: Subject): Promise<void> {
  await until("a write gets through", async () => (await subject.put("s", 0)).kind === "ok");
}

describe("creating the buckets", () => {
  test("has the longest name that a server takes", async () => {
    await using server = await NatsServer.start();
    const bucket = "b".repeat(244);
    await using _subject = await Subject.connect({ urls: [server.url], bucket });
    await using admin = await Admin.connect(server.url);
    expect((await admin.jsm.streams.info(`KV_${bucket}-tenures`)).config.max_age).toBe(0);
    const longer = leasesConfig(`${bucket}b-tenures`, { ttlMs: 15_000, replicas: 1, firstSeq: 1 });
    const failed = await admin.jsm.streams.add(longer).then(() => null, (error: Error) => error);
    expect(failed?.message).toContain("too long");
  }, TEST_MS);

  test("makes both as the contract says", async () => {
    await using server = await NatsServer.start();
    const beforeMs = Date.now();
    await using subject = await Subject.connect({ urls: [server.url] });
    await using admin = await Admin.connect(server.url);
    const { config: leases } = await admin.jsm.streams.info("KV_leases");
    expect(leases).toMatchObject({
      subjects: ["$KV.leases.>"],
      storage: "file",
      num_replicas: 1,
      max_age: nanos(15_000),
      duplicate_window: nanos(15_000),
      max_msgs_per_subject: 1,
      max_bytes: -1,
      max_msgs: -1,
      discard: "new",
      retention: "limits",
      allow_direct: false,
      deny_delete: true,
      allow_rollup_hdrs: true,
    });
    expect(leases.subject_delete_marker_ttl ?? 0).toBe(0);
    expect(leases.allow_msg_ttl ?? false).toBe(false);
    expect(leases.first_seq).toBeGreaterThanOrEqual(beforeMs * 1_000);
    expect(leases.first_seq).toBeLessThanOrEqual(Date.now() * 1_000);
    const { config: tenures } = await admin.jsm.streams.info("KV_leases-tenures");
    // Neither gives a revision again when it is deleted and made again.
    expect(tenures.first_seq).toBeGreaterThanOrEqual(beforeMs * 1_000);
    expect(tenures).toMatchObject({
      subjects: ["$KV.leases-tenures.>"],
      storage: "file",
      max_age: 0,
      max_msgs_per_subject: 8,
      discard: "new",
      allow_direct: false,
      deny_delete: true,
    });
    expect(subject.told.ready[0].ttlMs).toBe(15_000);
    expect(subject.told.ready[0].created.map(({ message }) => message)).toEqual([
      expect.stringContaining("Bucket leases-tenures did not exist"),
      expect.stringContaining("Bucket leases did not exist and was made, with 1 replica"),
    ]);
    expect(subject.told.ready[0].created.map(({ replicas }) => replicas)).toEqual([1, 1]);
    expect(subject.nats.warnings).toEqual([]);
  }, TEST_MS);

  test("succeeds for all agents that race, and leaves one bucket", async () => {
    await using server = await NatsServer.start();
    const subjects = Array.from(
      { length: 8 },
      (_, i) =>
        Subject.start({ urls: [server.url], ttlMs: 4_000, node: `n${i}`, incarnation: `i${i}` }),
    );
    await Promise.all(subjects.map((subject) => subject.connected()));
    expect(subjects.flatMap(({ told }) => told.problems)).toEqual([]);
    const puts = await Promise.all(subjects.map((subject) => subject.put("s", 0)));
    expect(puts.filter(({ kind }) => kind === "ok")).toHaveLength(1);
    await Promise.all(subjects.map((subject) => subject.nats.stop()));
  }, TEST_MS);

  test("uses the names, the TTL and the replicas that it is given", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({
      urls: [server.url],
      bucket: "Other_1",
      ttlMs: 2_500,
      replicas: 1,
    });
    await using admin = await Admin.connect(server.url);
    expect((await admin.jsm.streams.info("KV_Other_1")).config.max_age).toBe(nanos(2_500));
    expect((await admin.jsm.streams.info("KV_Other_1-tenures")).config.max_age).toBe(0);
    expect(checks(subject)).toEqual(["short_ttl"]);
    value(await subject.put("s", 0));
  }, TEST_MS);

  test("is refused, with what to do, when there are fewer servers than --replicas", async () => {
    await using server = await NatsServer.start();
    await using subject = Subject.start({ urls: [server.url], replicas: 3 });
    const problem = await subject.problem("replicas");
    expect(problem).toMatchObject({ fatal: true });
    expect(problem.message).toContain("with 3 replicas");
  }, TEST_MS);

  test("has as many replicas as the other bucket where three are refused", async () => {
    // What a cluster says of which a server is away: there are not enough for three.
    await using cluster = await NatsCluster.start(2);
    await using admin = await Admin.connect(cluster.urls[0]);
    await admin.jsm.streams.add({ ...tenuresConfig("leases", { replicas: 2 }) });
    await using subject = await Subject.connect({ urls: cluster.urls });
    const info = await admin.jsm.streams.info("KV_leases");
    expect(info.config.num_replicas).toBe(2);
    await usable(subject);
  }, 120_000);

  test("keeps three replicas in a cluster of three", async () => {
    await using cluster = await NatsCluster.start(3);
    await using subject = await Subject.connect({ urls: cluster.urls });
    await using admin = await Admin.connect(cluster.urls[0]);
    const info = await admin.jsm.streams.info("KV_leases");
    expect([info.config.num_replicas, info.cluster?.replicas?.length]).toEqual([3, 2]);
    expect((await admin.jsm.streams.info("KV_leases-tenures")).config.num_replicas).toBe(3);
    expect(subject.nats.warnings).toEqual([]);
  }, TEST_MS);

  test("keeps one replica with a warning in a cluster of two", async () => {
    await using cluster = await NatsCluster.start(2);
    await using subject = await Subject.connect({ urls: cluster.urls });
    expect(checks(subject)).toEqual(["replicas", "replicas"]);
    await usable(subject);
  }, TEST_MS);
});

describe("firstRevision()", () => {
  test("is above what a busy fleet wrote since the bucket was made before", () => {
    const madeMs = Date.UTC(2024, 0);
    const dayMs = 86_400_000;
    // 60,000 leases, renewed every 5 s, for a year.
    const written = 60_000 * (365 * dayMs / 5_000);
    expect(firstRevision(madeMs + 365 * dayMs, 0))
      .toBeGreaterThan(firstRevision(madeMs, 0) + written);
    expect(Number.isSafeInteger(firstRevision(Date.UTC(2255, 0), 0))).toBe(true);
  });

  test("is above the newest epoch when the clock was set back", () => {
    expect(firstRevision(1_000, 5_000_000)).toBe(5_000_001);
  });

  test(
    "a bucket that is made again starts above the newest recorded epoch when the clock was set back",
    async () => {
      await using server = await NatsServer.start();
      await using admin = await Admin.connect(server.url);
      {
        await using subject = await Subject.connect({ urls: [server.url] });
        const epoch = value(await subject.put("s", 0));
        const record = {
          node: "alpha",
          incarnation: "a1",
          address: null,
          epoch,
          acquired_at: "2024-01-02T03:04:05Z",
        };
        value(await subject.putTenure("s", 0, record));
      }
      const old = (await admin.jsm.streams.info("KV_leases")).state.last_seq;
      await admin.jsm.streams.delete("KV_leases");
      const clock = { bootMs: () => performance.now(), wallMs: () => Date.UTC(2001, 0) };
      await using subject = await Subject.connect({ urls: [server.url], clock });
      expect(value(await subject.put("s", 0))).toBe(old + 1);
    },
    TEST_MS,
  );
});

describe("an existing bucket", () => {
  test("has its TTL adopted when none is asked for", async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    await makeLeases(admin, { max_age: nanos(20_000) });
    await using subject = await Subject.connect({ urls: [server.url] });
    expect(subject.told.ready[0].ttlMs).toBe(20_000);
    expect(subject.nats.ttlMs).toBe(20_000);
  }, TEST_MS);

  test(
    "is a fault that names both TTLs when another one is asked for (kubernetes#47671)",
    async () => {
      await using server = await NatsServer.start();
      await using admin = await Admin.connect(server.url);
      await makeLeases(admin);
      await using subject = Subject.start({ urls: [server.url], ttlMs: 30_000 });
      const problem = await subject.problem("ttl");
      expect(problem).toMatchObject({ fatal: true });
      expect(problem.message).toContain("15s");
      expect(problem.message).toContain("30s");
      expect(subject.nats.connected).toBe(false);
      // It is looked at on, and used once it is put right.
      await admin.jsm.streams.update("KV_leases", { max_age: nanos(30_000) });
      await subject.connected();
      expect(subject.told.ready[0].ttlMs).toBe(30_000);
    },
    TEST_MS,
  );

  test(
    "is reported when its TTL changes under a running agent, and when it is put right (kubernetes#47671)",
    async () => {
      await using server = await NatsServer.start();
      await using admin = await Admin.connect(server.url);
      await using subject = await Subject.connect({ urls: [server.url] });
      const held = value(await subject.put("s", 0));
      await admin.jsm.streams.update("KV_leases", { max_age: nanos(60_000) });
      // A look is due within a minute; a new connection looks at once.
      await server.restart();
      await until("the drift is told", () => subject.nats.drift);
      expect(subject.told.drifts[0]?.message).toContain("60s");
      expect(subject.told.drifts[0]?.message).toContain("15s");
      expect(subject.told.drifts[0]?.ttlMs).toBe(60_000);
      // Leases can still be released.
      expect(subject.nats.connected).toBe(true);
      value(await subject.delete("s", held));
      await using again = await Admin.connect(server.url);
      await again.jsm.streams.update("KV_leases", { max_age: nanos(15_000) });
      await until("it is put right", () => subject.nats.drift === null);
      expect(subject.told.drifts.at(-1)).toBeNull();
      expect(subject.told.problems.filter(({ fatal }) => fatal)).toEqual([]);
    },
    TEST_MS,
  );

  test("is looked at as soon as somebody changes it", async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    await using subject = await Subject.connect({ urls: [server.url] });
    await admin.jsm.streams.update("KV_leases", { max_age: nanos(5_000), duplicate_window: 0 });
    await until("the drift is told", () => subject.nats.drift, 10_000);
    expect(subject.told.drifts).toMatchObject([{ check: "ttl", ttlMs: 5_000 }]);
    await admin.jsm.streams.update("KV_leases", { max_age: nanos(15_000) });
    await until("it is put right", () => subject.nats.drift === null, 10_000);
    // A fault of another sort has no TTL to go by.
    await admin.jsm.streams.update("KV_leases-tenures", {
      max_age: nanos(60_000),
      duplicate_window: nanos(60_000),
    });
    await until("the drift is told", () => subject.nats.drift, 10_000);
    expect(subject.nats.drift).toEqual({ check: "tenures_ttl", message: expect.any(String) });
  }, TEST_MS);

  test("is told to be another one, once, by each agent, when it was made again", async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    await using first = await Subject.connect({ urls: [server.url] });
    await using second = await Subject.connect({ urls: [server.url], node: "b", incarnation: "b" });
    const remade = () => [first.told.remade, second.told.remade];
    expect(remade()).toEqual([0, 0]);
    await admin.jsm.streams.delete("KV_leases");
    // Nobody sends anything: the server tells.
    await until("both tell", () => remade().every((times) => times === 1), 10_000);
    // By somebody else, and with a connection lost in between.
    await admin.jsm.streams.delete("KV_leases");
    await makeLeases(admin);
    await server.restart();
    await until("both tell", () => remade().every((times) => times >= 2), 10_000);
    await using late = await Subject.connect({ urls: [server.url] });
    expect(late.told.remade).toBe(0);
  }, TEST_MS);

  test("is looked at as soon as an entry is gone, where the server may not tell", async () => {
    await using quiet = await quietServer();
    await using subject = await Subject.connect(quiet.options);
    const held = value(await subject.put("s", 0));
    await quiet.admin.jsm.streams.delete("KV_leases");
    await makeLeases(quiet.admin);
    expect(await subject.put("s", held)).toEqual({ kind: "conflict", lastRevision: 0 });
    await until("it is told", () => subject.told.remade === 1, 10_000);
    expect(subject.told.denials).toEqual([]);
    expect(subject.told.problems).toEqual([]);
  }, TEST_MS);

  test("is looked at again every minute without a new connection", async () => {
    await using quiet = await quietServer();
    // Timers sixty times as fast for waits of a minute: the look comes after a second.
    const fast = {
      after(delayMs: number, wake: () => void) {
        const timer = setTimeout(wake, delayMs === 60_000 ? 1_000 : delayMs);
        return () => clearTimeout(timer);
      },
    };
    await using subject = await Subject.connect({ ...quiet.options, timers: fast });
    await quiet.admin.jsm.streams.update("KV_leases", { max_age: nanos(60_000) });
    await until("the drift is told", () => subject.nats.drift, 10_000);
    expect(subject.told.connections).toEqual([true]);
  }, TEST_MS);

  test("of nats.js's KV library is used, with its traits as warnings", async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    await new Kvm(jetstream(admin.nc)).create("leases", { ttl: 15_000, history: 1 });
    await using subject = await Subject.connect({ urls: [server.url] });
    expect(checks(subject)).toEqual(["allow_direct", "deny_delete"]);
    value(await subject.put("s", 0));
  }, TEST_MS);

  test("that an operator repairs loses its warning at the next look", async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    await makeLeases(admin, { allow_direct: true });
    await using subject = await Subject.connect({ urls: [server.url] });
    expect(checks(subject)).toEqual(["allow_direct"]);
    await admin.jsm.streams.update("KV_leases", { allow_direct: false });
    await server.restart(); // A look is due within a minute; a new connection looks at once.
    await until("the warning is gone", () => subject.nats.warnings.length === 0);
  }, TEST_MS);
});

test(
  "inspectBuckets() tells the server's clock by the middle between question and answer",
  async () => {
    await using server = await NatsServer.start();
    await using _ = await Subject.connect({ urls: [server.url] });
    await using admin = await Admin.connect(server.url);
    const apartMs = [-400, 400]; // asked, and answered
    const { aheadMs } = await inspectBuckets({
      jsm: admin.jsm,
      maker: admin.jsm,
      bucket: "leases",
      clustered: false,
      mustBeClustered: false,
      choosesFirst: true,
      wallMs: () => Date.now() + apartMs.shift()!,
    });
    expect(Math.abs(aheadMs!)).toBeLessThan(200);
  },
  TEST_MS,
);
