/** What is told of the buckets, and when: before a connection is used, after a look, when one is deleted. */
import { describe, expect, test } from "bun:test";
import { value } from "../contract/coordinator.ts";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

const FIRST = ["known", "up"];

/** A server's configuration with one user who is denied these subjects. */
function config(deny: string): string {
  return `authorization { users: [
    { user: agent, password: pw, permissions: { publish: { deny: [${deny}] } } } ] }`;
}

/** Connects as that user. */
async function connect(server: NatsServer): Promise<Subject> {
  const passwordFile = `${server.dir}/password`;
  await Bun.write(passwordFile, "pw\n");
  return await Subject.connect({
    urls: [server.url],
    credentials: { user: "agent", passwordFile },
  });
}

/** Waits until that much was told. */
async function told({ told: { course } }: Subject, times: number): Promise<readonly string[]> {
  await until(`${times} things are told`, () => course.length >= times, 30_000);
  return course;
}

describe("NatsListener onBuckets()", () => {
  test(
    "tells that they are unseen before a new connection is used, and known once they were looked at",
    async () => {
      await using server = await NatsServer.start();
      await using subject = await Subject.connect({ urls: [server.url] });
      await server.restart();
      expect(await told(subject, 6)).toEqual([...FIRST, "down", "unseen", "up", "known"]);
    },
    TEST_MS,
  );

  test(
    "tells that they are unseen, then others, when they were lost without a connection",
    async () => {
      await using server = await NatsServer.start();
      await using subject = await Subject.connect({ urls: [server.url] });
      await server.wipe();
      await server.restart();
      expect(await told(subject, 6)).toEqual([...FIRST, "down", "unseen", "up", "others"]);
    },
    TEST_MS,
  );

  test("tells that they are unseen as soon as one is deleted, then others", async () => {
    await using server = await NatsServer.start();
    await using subject = await Subject.connect({ urls: [server.url] });
    await using admin = await Admin.connect(server.url);
    await admin.jsm.streams.delete("KV_leases");
    expect(await told(subject, 4)).toEqual([...FIRST, "unseen", "others"]);
  }, TEST_MS);

  test(
    "leaves them unseen while they cannot be looked at, though requests are answered",
    async () => {
      await using server = await NatsServer.start({ config: config("") });
      await using subject = await connect(server);
      await server.restart(config('"$JS.API.STREAM.INFO.*"'));
      await subject.problem("permissions");
      value(await subject.put("s", 0));
      const [, , ...later] = subject.told.course;
      expect(later.slice(0, 3)).toEqual(["down", "unseen", "up"]);
      expect(later.slice(3).filter((seen) => seen !== "unseen")).toEqual([]);
      await server.reload(config(""));
      await until("they are known", () => subject.told.buckets.at(-1) === "known", 30_000);
    },
    TEST_MS,
  );

  test(
    "tells that they are unseen when a look fails on a connection that goes on",
    async () => {
      await using server = await NatsServer.start({ config: config("") });
      await using subject = await connect(server);
      await server.reload(config('"$JS.API.STREAM.INFO.*", "$KV.leases.denied"'));
      // A denial is looked into at once.
      expect((await subject.put("denied", 0)).kind).toBe("unknown");
      expect(await told(subject, 3)).toEqual([...FIRST, "unseen"]);
      await server.reload(config(""));
      await until("they are known", () => subject.told.buckets.at(-1) === "known", 30_000);
      expect(subject.told.course).not.toContain("down");
    },
    TEST_MS,
  );
});
