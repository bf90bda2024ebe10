import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { TenureRecord } from "../../src/lease/tenure.ts";
import { value } from "../contract/coordinator.ts";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

function tenure(epoch: number): TenureRecord {
  return {
    node: "beta",
    incarnation: "b1",
    address: null,
    epoch,
    acquired_at: "2024-01-02T03:04:05Z",
  };
}

describe("onTenure()", () => {
  let server: NatsServer;
  let writer: Subject;
  beforeAll(async () => {
    server = await NatsServer.start();
    writer = await Subject.connect({ urls: [server.url], node: "beta", incarnation: "b1" });
  });
  afterAll(async () => {
    await writer.nats.stop();
    await server.stop();
  });

  const heard = (subject: Subject, store: string) =>
    subject.told.tenures.filter((told) => told.store === store).map(({ record }) => record.epoch);

  test("tells the newest record of each store at first, then each that is written", async () => {
    const first = value(await writer.putTenure("a/x.y", 0, tenure(1)));
    const second = value(await writer.putTenure("a/x.y", first, tenure(2)));
    await using subject = await Subject.connect({ urls: [server.url] });
    await until("the newest is told", () => heard(subject, "a/x.y").includes(2));
    value(await writer.putTenure("a/x.y", second, tenure(3)));
    await until("the next is told", () => heard(subject, "a/x.y").includes(3));
    expect(heard(subject, "a/x.y")).toEqual([2, 3]);
    // Beside the record, as when it is read; but not in it.
    const ttlMs = writer.nats.ttlMs!;
    expect(ttlMs).toBeGreaterThan(0);
    expect(subject.told.tenures.map(({ record }) => record.ttlMs)).toEqual([ttlMs, ttlMs]);
    expect(value(await subject.readTenure("a/x.y")).record?.ttlMs).toBe(ttlMs);
    const [newest] = value(await subject.history("a/x.y"));
    expect(Object.keys(newest!)).not.toContain("ttlMs");
  }, TEST_MS);

  test("passes over what is no record of a store", async () => {
    await using subject = await Subject.connect({ urls: [server.url] });
    await using admin = await Admin.connect(server.url);
    await admin.put("leases-tenures", "a.=.b", JSON.stringify(tenure(1)));
    await admin.put("leases-tenures", "garbage", "{");
    value(await writer.putTenure("after", 0, tenure(1)));
    await until("the one after is told", () => heard(subject, "after").length > 0);
    expect(subject.told.tenures.map(({ store }) => store).filter((store) => store !== "a/x.y"))
      .toEqual(["after"]);
  }, TEST_MS);

  test("goes on where it was after a reconnect, without telling all again", async () => {
    value(await writer.putTenure("known", 0, tenure(1)));
    await using subject = await Subject.connect({ urls: [server.url] });
    await until("it is told", () => heard(subject, "known").length > 0);
    const toldBefore = subject.told.tenures.length;
    await server.kill();
    await subject.disconnected();
    await server.restart();
    await Promise.all([subject.connected(), writer.connected()]);
    value(await writer.putTenure("new", 0, tenure(9)));
    await until("the new one is told", () => heard(subject, "new").length > 0);
    expect(subject.told.tenures.slice(toldBefore).map(({ store }) => store)).toEqual(["new"]);
  }, TEST_MS);

  test("starts anew when the bucket was deleted and made again", async () => {
    await using subject = await Subject.connect({ urls: [server.url] });
    await using admin = await Admin.connect(server.url);
    await until("something is told", () => subject.told.tenures.length > 0);
    await admin.jsm.streams.delete("KV_leases-tenures");
    // A refused write has the buckets looked at and made.
    await until(
      "it is made again",
      async () => (await subject.putTenure("fresh", 0, tenure(1))).kind === "ok",
    );
    await until(
      "its records are told, though their sequences are low again",
      () => heard(subject, "fresh").includes(1),
    );
  }, TEST_MS);
});
