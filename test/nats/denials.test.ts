import { describe, expect, test } from "bun:test";
import { value } from "../contract/coordinator.ts";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

const LEASES = "$KV.leases.>";
const TENURES = "$KV.leases-tenures.>";
const READS = "$JS.API.STREAM.MSG.GET.*";
const INFO = "$JS.API.STREAM.INFO.*";
const OTHERS = ["$JS.API.STREAM.CREATE.*", "$JS.API.CONSUMER.>", "$JS.FC.>"];
const ALL = [LEASES, TENURES, READS, INFO, ...OTHERS];

function config(allow: readonly string[], deny: readonly string[] = []): string {
  const list = (subjects: readonly string[]) => subjects.map((each) => `"${each}"`).join();
  return `authorization { users: [{ user: agent, password: pw, permissions: {
    publish: { allow: [${list(allow)}], deny: [${list(deny)}] }
    subscribe: { allow: ["_INBOX.>"] } } }] }`;
}

async function start(allow: readonly string[], deny: readonly string[] = []) {
  const server = await NatsServer.start({ config: config(ALL) });
  const passwordFile = `${server.dir}/password`;
  await Bun.write(passwordFile, "pw\n");
  const options = { urls: [server.url], credentials: { user: "agent", passwordFile } };
  // The buckets are there, as they are when somebody takes permissions away.
  await (await Subject.connect(options)).nats.stop();
  await server.reload(config(allow, deny));
  const subject = await Subject.connect(options);
  return { server, subject };
}

const denied = (subject: Subject) => subject.told.denials.at(-1)?.message ?? null;

describe("NatsCoordinator without permissions", () => {
  test(
    "tells what is denied before anybody asks, and when it is allowed, on one connection",
    async () => {
      const { server, subject } = await start([INFO, ...OTHERS]);
      await using _server = server;
      await using _subject = subject;
      const message = await until("it is told", () => denied(subject));
      for (
        const needed of [
          LEASES,
          TENURES,
          "$JS.API.STREAM.MSG.GET.KV_leases ",
          "$JS.API.STREAM.MSG.GET.KV_leases-tenures",
        ]
      ) {
        expect(message).toContain(needed);
      }
      expect(message).toContain("no lease can be acquired");
      expect(subject.told.denials).toHaveLength(1);
      await server.reload(config(ALL));
      await until("it is over", () => subject.told.denials.length === 2);
      expect(subject.told.denials[1]).toBeNull();
      expect(subject.told.connections).toEqual([true]);
      value(await subject.put("s", 0));
    },
    TEST_MS,
  );

  test("a denied request is unknown at once, and names the subject", async () => {
    const { server, subject } = await start([TENURES, INFO, READS, ...OTHERS]);
    await using _server = server;
    await using _subject = subject;
    const startMs = performance.now();
    const outcomes = await Promise.all(["one", "two"].map((store) => subject.put(store, 0)));
    expect(performance.now() - startMs).toBeLessThan(1_000); // Before the timeout of 1,500 ms.
    expect(outcomes).toEqual(["one", "two"].map((store) => ({
      kind: "unknown",
      reason: expect.stringContaining(`publish to $KV.leases.${store};`),
    })));
    // Others are not.
    expect(value(await subject.read("one"))).toEqual({ kind: "none" });
    expect(await until("it is told", () => denied(subject))).toContain(LEASES);
    expect(denied(subject)).not.toContain(TENURES);
  }, TEST_MS);

  test("names a single key that is denied, until it is allowed", async () => {
    const { server, subject } = await start(ALL, ["$KV.leases.secret"]);
    await using _server = server;
    await using _subject = subject;
    value(await subject.put("open", 0));
    expect(denied(subject)).toBeNull();
    expect((await subject.put("secret", 0)).kind).toBe("unknown");
    expect(await until("it is told", () => denied(subject))).toContain("$KV.leases.secret");
    // What is probed is allowed all the time, which does not make it over.
    const looks = subject.told.denials.length;
    await server.reload(config(ALL));
    expect(subject.told.denials).toHaveLength(looks);
    value(await subject.put("secret", 0));
    expect(denied(subject)).toBeNull();
  }, TEST_MS);

  test(
    "a look that was denied once leaves no problem behind when the next one is not",
    async () => {
      const { server, subject } = await start(ALL);
      await using _server = server;
      await using _subject = subject;
      await server.reload(config([TENURES, READS, ...OTHERS]));
      expect((await subject.put("s", 0)).kind).toBe("unknown"); // which has the buckets looked at
      expect((await subject.problem("permissions")).message).toContain(INFO.slice(0, -1));
      const told = subject.told.ready.length;
      await server.reload(config(ALL));
      await until("it is told that all is well", () => subject.told.ready.length > told);
      expect(subject.nats.problem).toBeNull();
      expect(subject.told.connections).toEqual([true]);
    },
    TEST_MS,
  );

  test("finding out stores nothing", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    await using admin = await Admin.connect(server.url);
    const info = await admin.jsm.streams.info("KV_leases");
    expect(info.state.messages).toBe(0);
    expect(info.state.last_seq).toBe(info.config.first_seq! - 1);
    const tenures = await admin.jsm.streams.info("KV_leases-tenures");
    expect(tenures.state.last_seq).toBe(tenures.config.first_seq! - 1);
    expect(subject.told.denials).toEqual([]);
  }, TEST_MS);
});
