import { describe, expect, test } from "bun:test";
import { leasesConfig } from "../../src/nats/stream_config.ts";
import { value } from "../contract/coordinator.ts";
import { Admin } from "../support/admin.ts";
import { NatsCluster, NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 120_000;

describe("reads", () => {
  test(
    "ask the stream's leader even where followers may answer (nats-server#4710, #4162)",
    async () => {
      await using server = await NatsServer.start();
      await using admin = await Admin.connect(server.url);
      const config = leasesConfig("leases", { ttlMs: 15_000, replicas: 1 });
      await admin.jsm.streams.add({ ...config, allow_direct: true });
      await using subject = await Subject.connect({ urls: [server.url] });
      const asked: string[] = [];
      admin.nc.subscribe("$JS.API.>", {
        callback: (_, message) => void asked.push(message.subject),
      });
      await admin.nc.flush();
      value(await subject.read("s"));
      value(await subject.readTenure("s"));
      value(await subject.history("s"));
      await admin.nc.flush();
      expect(asked).toEqual([
        "$JS.API.STREAM.MSG.GET.KV_leases",
        "$JS.API.STREAM.MSG.GET.KV_leases-tenures",
        "$JS.API.STREAM.MSG.GET.KV_leases-tenures",
      ]);
    },
    TEST_MS,
  );

  test(
    "see what was acknowledged before a SIGKILL, and old revisions stay refused (nats-server#6557)",
    async () => {
      await using server = await NatsServer.start({ jetstreamConfig: "sync_interval: always" });
      await using subject = await Subject.connect({ urls: [server.url] });
      const old = value(await subject.put("s", 0));
      const newest = value(await subject.put("s", old));
      await server.kill();
      await server.restart();
      await until("the break is told", () => subject.told.connections.includes(false));
      await subject.connected();
      expect(value(await subject.read("s"))).toMatchObject({ kind: "entry", revision: newest });
      expect((await subject.put("s", old)).kind).toBe("conflict");
      expect((await subject.put("s", 0)).kind).toBe("conflict");
    },
    TEST_MS,
  );
});

describe("NatsCoordinator on a cluster", () => {
  test("goes on with its entries when the stream's leader is killed (consul#1162)", async () => {
    await using cluster = await NatsCluster.start(3);
    await using subject = await Subject.connect({ urls: cluster.urls, ttlMs: 60_000 });
    // The servers learn a moment later who takes the writes of a new bucket.
    const revision = await until("a write gets through", async () => {
      const outcome = await subject.put("s", 0);
      return outcome.kind === "ok" && outcome.value;
    });
    const leader = await cluster.leader("KV_leases");
    await leader.kill();
    const renewed = await until("a renewal gets through", async () => {
      const outcome = await subject.put("s", revision);
      // An earlier try may have landed unacknowledged: then its entry is ours, at another revision.
      if (outcome.kind === "conflict") {
        const read = await subject.read("s");
        return read.kind === "ok" && read.value.kind === "entry" && read.value.revision;
      }
      return outcome.kind === "ok" && outcome.value;
    }, 60_000);
    expect(renewed).toBeGreaterThan(revision);
    // The leader may change once more: then nobody answers for a moment, which is told as unknown.
    const read = await until("it is read", async () => {
      const outcome = await subject.read("s");
      return outcome.kind === "ok" && outcome.value;
    }, 60_000);
    expect(read).toMatchObject({ incarnation: "a1" });
    await leader.restart();
  }, TEST_MS);

  test(
    "finds the rest of the cluster when it was given one server, and that one is gone",
    async () => {
      await using cluster = await NatsCluster.start(3);
      await using subject = await Subject.connect({ urls: [cluster.urls[0]] });
      await cluster.servers[0].kill();
      await until("the break is told", () => subject.told.connections.includes(false));
      await subject.connected();
      expect(subject.nats.stats().server).not.toBe(cluster.urls[0]);
    },
    TEST_MS,
  );
});
