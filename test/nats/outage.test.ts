import { describe, expect, test } from "bun:test";
import { createServer } from "node:net";
import type { Outcome } from "../../src/ports/coordinator.ts";
import { value } from "../contract/coordinator.ts";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

describe("NatsCoordinator in an outage", () => {
  test(
    "a request is unknown within its timeout when the server hangs (kubernetes#65094)",
    async () => {
      await using server = await NatsServer.start();
      await using subject = await Subject.connect({ urls: [server.url] });
      value(await subject.put("s", 0));
      server.freeze();
      const startMs = performance.now();
      const outcomes = await Promise.all(
        Array.from({ length: 50 }, (_, i) => subject.put(`s${i}`, 0)),
      );
      const tookMs = performance.now() - startMs;
      server.thaw();
      expect(new Set(outcomes.map(({ kind }) => kind))).toEqual(new Set(["unknown"]));
      expect(outcomes[0]).toMatchObject({ reason: expect.stringContaining("within 1500 ms") });
      // Not earlier than the timeout, and all by one timer: not one after the other.
      expect(tookMs).toBeGreaterThan(1_400);
      expect(tookMs).toBeLessThan(5_000);
    },
    TEST_MS,
  );

  test("a connection is given up when pings are not answered, and made again", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    server.freeze();
    await subject.disconnected();
    expect(subject.told.connections).toEqual([true, false]);
    expect((await subject.problem("connection")).message).toContain("does not answer pings");
    const startMs = performance.now();
    expect((await subject.put("s", 0)).kind).toBe("unknown");
    expect(performance.now() - startMs).toBeLessThan(1_000); // Known to be down: at once.
    server.thaw();
    await subject.connected();
    expect(subject.told.connections).toEqual([true, false, true]);
    value(await subject.put("s", 0));
  }, TEST_MS);

  test("an outage is told again where anything was answered since the last one", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    const { told } = subject;
    const lost = () => told.problems.filter(({ message }) => /answer pings/.test(message)).length;
    server.freeze();
    await until("it is told", () => lost() === 1);
    server.thaw();
    await until("it is over", () => told.ready.length === 2);
    server.freeze();
    await until("it is told again", () => lost() === 2);
    expect(told.connections).toEqual([true, false, true, false]);
    expect(subject.nats.problem).not.toBeNull();
    server.thaw();
    await subject.connected();
  }, TEST_MS);

  test("an outage is not over for a connection on which nothing is answered", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    const { told } = subject;
    server.freeze();
    await subject.disconnected();
    // Frozen again in the very turn in which it is connected.
    let again = 0;
    let ready: boolean | null = null;
    const heard = told.onConnection.bind(told);
    told.onConnection = (connected) => {
      heard(connected);
      if (!connected) return;
      ready = subject.nats.stats().ready;
      server.freeze();
      again++;
    };
    const problems = told.problems.length;
    server.thaw();
    await until("it was connected, and is not any more", () => told.connections.length === 4);
    expect(again).toBe(1);
    expect<boolean | null>(ready).toBe(false);
    expect(told.ready).toHaveLength(1);
    expect(subject.nats.problem).not.toBeNull();
    expect(subject.nats.stats().ready).toBe(false);
    // In other words by now, perhaps, but no news.
    expect(told.news.slice(problems)).not.toContain(true);
    told.onConnection = heard;
    server.thaw();
    await until("it is over", () => told.ready.length === 2);
    expect(subject.nats.problem).toBeNull();
  }, TEST_MS);

  test("a write given up on can land later, and its acknowledgement is dropped", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    server.freeze();
    const outcomes: Outcome<number>[] = [];
    subject.nats.putEntry("late", 0, (outcome) => outcomes.push(outcome));
    await until("it is given up on", () => outcomes.length > 0);
    expect(outcomes).toMatchObject([{ kind: "unknown" }]);
    server.thaw();
    const entry = await until("it landed", async () => {
      const read = await subject.read("late");
      return read.kind === "ok" && read.value.kind === "entry" && read.value;
    });
    expect(entry.incarnation).toBe("a1");
    // The acknowledgement came before the answer to that read, on the same subscription.
    expect(outcomes).toHaveLength(1);
    // Whoever finds it can remove it by compare-and-set.
    value(await subject.delete("late", entry.revision));
  }, TEST_MS);

  test("requests in flight are unknown at once when the connection breaks", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    server.freeze(); // So that none is answered before the kill.
    const all = Promise.all(Array.from({ length: 20 }, (_, i) => subject.put(`s${i}`, 0)));
    const startMs = performance.now();
    await server.kill();
    const outcomes = await all;
    expect(performance.now() - startMs).toBeLessThan(1_400); // Before the timeout.
    expect(new Set(outcomes.map(({ kind }) => kind))).toEqual(new Set(["unknown"]));
    expect(outcomes[0]).toMatchObject({ reason: expect.stringContaining("connection") });
  }, TEST_MS);

  test("nothing is delivered later when it was written around a break", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    const before = value(await subject.put("before", 0));
    const outcomes: Promise<Outcome<number>>[] = [];
    // In every turn from the kill until the coordinator is connected again.
    let writing = true;
    const writer = (async () => {
      for (let i = 0; writing; i++) {
        if (!subject.nats.connected) outcomes.push(subject.put(`while-down-${i}`, 0));
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    await server.kill();
    await server.restart();
    await subject.connected();
    writing = false;
    await writer;
    const told = await Promise.all(outcomes);
    expect(told.length).toBeGreaterThan(10);
    expect(new Set(told.map(({ kind }) => kind))).toEqual(new Set(["unknown"]));
    // Requests keep their order on a connection: what was kept would be there by now.
    expect(value(await subject.read("before"))).toMatchObject({ revision: before });
    await using admin = await Admin.connect(server.url);
    const info = await admin.jsm.streams.info("KV_leases", { subjects_filter: ">" });
    expect(Object.keys(info.state.subjects ?? {})).toEqual(["$KV.leases.before"]);
  }, TEST_MS);

  test("start() returns at once and keeps trying when no server is there", async () => {
    await using server = await NatsServer.start();
    await server.kill();
    await using subject = Subject.start({ urls: [server.url] });
    expect(subject.nats.connected).toBe(false);
    expect((await subject.put("s", 0)).kind).toBe("unknown");
    const problem = await subject.problem("connection");
    expect(problem.fatal).toBe(false);
    expect(problem.message).toContain(server.url);
    await server.restart();
    await subject.connected();
    expect(subject.nats.problem).toBeNull();
    expect(subject.nats.stats()).toMatchObject({ ready: true, server: server.url });
  }, TEST_MS);

  test("a dial that is given up leaves no socket behind when a server hangs", async () => {
    let open = 0;
    let accepted = 0;
    // Accepts, as a hanging server's kernel does, and says nothing.
    const mute = createServer((socket) => {
      open++;
      accepted++;
      socket.on("close", () => open--);
      socket.on("error", () => {});
      socket.resume();
    });
    await new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve));
    const { port } = mute.address() as { port: number };
    await using subject = Subject.start({ urls: [`nats://127.0.0.1:${port}`] });
    await until("it dialled three times", () => accepted >= 3);
    expect(open).toBe(1);
    expect((await subject.problem("connection")).message).toContain("timeout");
    await subject.nats.stop();
    await until("the last one is closed, too", () => open === 0);
    mute.close();
  }, TEST_MS);

  test("stop() makes requests in flight unknown and leaves nothing running", async () => {
    await using server = await NatsServer.start();
    const subject = await Subject.connect({ urls: [server.url] });
    server.freeze();
    const outcome = subject.put("s", 0);
    await subject.nats.stop();
    expect((await outcome).kind).toBe("unknown");
    expect((await subject.put("s", 0)).kind).toBe("unknown");
    server.thaw();
    expect(subject.told.connections).toEqual([true]);
  }, TEST_MS);
});

/** What docs/coordinator.md says that an account must be allowed to publish to. */
const NEEDED = [
  "$KV.leases.>",
  "$KV.leases-tenures.>",
  "$JS.API.STREAM.INFO.*",
  "$JS.API.STREAM.MSG.GET.*",
  "$JS.API.STREAM.CREATE.*",
  "$JS.API.CONSUMER.CREATE.>",
  "$JS.API.CONSUMER.DELETE.>",
  "$JS.FC.>",
];

describe("NatsCoordinator where JetStream cannot be used", () => {
  test("says so and recovers when JetStream is not enabled at first", async () => {
    await using server = await NatsServer.start({ jetstream: false });
    await using subject = Subject.start({ urls: [server.url] });
    const problem = await subject.problem("jetstream");
    expect(problem.fatal).toBe(false);
    expect(subject.nats.connected).toBe(false);
    expect(subject.nats.stats()).toMatchObject({ connected: true, ready: false });
    expect(await subject.put("s", 0)).toEqual({ kind: "unknown", reason: problem.message });
    await server.restart(`jetstream { store_dir: "${server.dir}/js" }`);
    await subject.connected();
  }, TEST_MS);

  test("names what the account may not do when it has no permission", async () => {
    const config = (allow: string) =>
      `authorization { users: [
      { user: agent, password: pw, permissions: { publish: { allow: [${allow}] } } } ] }`;
    await using server = await NatsServer.start({ config: config('"x"') });
    const passwordFile = `${server.dir}/password`;
    await Bun.write(passwordFile, "pw\n");
    await using subject = Subject.start({
      urls: [server.url],
      credentials: { user: "agent", passwordFile },
    });
    expect((await subject.problem("permissions")).message).toContain("$JS.API.STREAM.INFO");
    await server.reload(config(NEEDED.map((subject) => JSON.stringify(subject)).join()));
    await subject.connected();
    expect(subject.nats.warnings).toEqual([]); // Above all: the tenures can be followed.
    value(await subject.put("s", 0));
    value(await subject.read("s"));
    expect(value(await subject.history("s"))).toEqual([]);
  }, TEST_MS);

  test(
    "makes the bucket again, above the old revisions, when it is deleted while running (nats-server#7564)",
    async () => {
      await using server = await NatsServer.start();
      await using subject = await Subject.connect({ urls: [server.url] });
      await using admin = await Admin.connect(server.url);
      const old = value(await subject.put("s", 0));
      await admin.jsm.streams.delete("KV_leases");
      // A renewal finds no responders, which has the buckets looked at.
      const renewal = await subject.put("s", old);
      expect(renewal.kind).not.toBe("ok");
      const epoch = await until("the store can be taken again", async () => {
        const outcome = await subject.put("s", 0);
        return outcome.kind === "ok" && outcome.value;
      });
      expect(epoch).toBeGreaterThan(old);
      const facts = await until("it is told", () => subject.told.ready[1]);
      expect(facts.created.map(({ message }) => message)[0])
        .toContain("Bucket leases did not exist");
      expect(subject.told.remade).toBe(1);
    },
    TEST_MS,
  );

  test("a refused write is unknown with the server's reason when the bucket is full", async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    await using subject = await Subject.connect({ urls: [server.url] });
    await admin.jsm.streams.update("KV_leases", { max_msgs: 1 });
    value(await subject.put("one", 0));
    expect(await subject.put("two", 0)).toMatchObject({
      kind: "unknown",
      reason: expect.stringContaining("maximum messages exceeded"),
    });
    await until(
      "it is a warning",
      () => subject.nats.warnings.some(({ check }) => check === "limits"),
    );
  }, TEST_MS);
});

describe("NatsCoordinator refused by authentication", () => {
  test(
    "keeps trying, says so, and recovers when authentication errors storm (nats.node#532, #533)",
    async () => {
      const config = (password: string) =>
        `authorization { users: [{ user: agent, password: "${password}" }] }`;
      await using server = await NatsServer.start({ config: config("old") });
      const passwordFile = `${server.dir}/password`;
      await Bun.write(passwordFile, "old\n");
      await using subject = await Subject.connect({
        urls: [server.url],
        credentials: { user: "agent", passwordFile },
      });
      value(await subject.put("s", 0));
      // Everybody is thrown out, and refused again and again.
      await server.reload(config("new"));
      await subject.disconnected();
      expect((await subject.problem("authentication")).fatal).toBe(false);
      await until(
        "it was refused many times",
        async () => (await server.monitor("varz")).total_connections >= 6,
      );
      // Told once, not at each try.
      const refusals = subject.told.problems.filter(({ check }) => check === "authentication");
      expect(refusals).toHaveLength(1);
      await Bun.write(passwordFile, "new\n");
      await subject.connected();
      expect(value(await subject.read("s"))).toMatchObject({ kind: "entry", node: "alpha" });
    },
    TEST_MS,
  );
});
