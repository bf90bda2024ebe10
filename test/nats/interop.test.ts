import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { jetstream } from "@nats-io/jetstream";
import { type KV, Kvm } from "@nats-io/kv";
import { value } from "../contract/coordinator.ts";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";

/** An older program in the same bucket: `create`, `update` with a revision, `get`, `delete`. */
describe("a KV client and the coordinator in one bucket", () => {
  let server: NatsServer;
  let admin: Admin;
  let subject: Subject;
  let kv: KV;

  beforeAll(async () => {
    server = await NatsServer.start();
    subject = await Subject.connect({ urls: [server.url] });
    admin = await Admin.connect(server.url);
    kv = await new Kvm(jetstream(admin.nc)).open("leases");
  });
  afterAll(async () => {
    await subject.nats.stop();
    await admin.nc.close();
    await server.stop();
  });

  test("the client sees our entry as the node's name alone, and cannot create over it", async () => {
    const revision = value(await subject.put("a/b.c", 0));
    const entry = await kv.get("a/b.c");
    expect([entry?.string(), entry?.revision, entry?.operation]).toEqual([
      "alpha",
      revision,
      "PUT",
    ]);
    expect(kv.create("a/b.c", "older")).rejects.toThrow("wrong last sequence");
  });

  test("we see the client's entry as a holder without incarnation, and cannot create over it", async () => {
    const revision = await kv.create("theirs", "older");
    expect((await subject.put("theirs", 0)).kind).toBe("conflict");
    expect(value(await subject.read("theirs")))
      .toEqual({ kind: "entry", revision, node: "older", incarnation: null, address: null });
    // It renews.
    const renewed = await kv.update("theirs", "older", revision);
    expect((await subject.put("theirs", revision)).kind).toBe("conflict");
    expect(value(await subject.read("theirs"))).toMatchObject({ revision: renewed });
  });

  test("the client's update fails once we took over at its revision", async () => {
    const revision = await kv.create("taken", "older");
    value(await subject.put("taken", revision));
    expect(kv.update("taken", "older", revision)).rejects.toThrow("wrong last sequence");
  });

  test("the client creates over our tombstone, and we over its", async () => {
    const ours = value(await subject.put("there-and-back", 0));
    const tombstone = value(await subject.delete("there-and-back", ours));
    expect((await kv.get("there-and-back"))?.operation).toBe("DEL");
    const theirs = await kv.create("there-and-back", "older");
    expect(theirs).toBeGreaterThan(tombstone);
    await kv.delete("there-and-back");
    const read = value(await subject.read("there-and-back"));
    if (read.kind !== "tombstone") throw new Error(`Expected a tombstone, got ${read.kind}`);
    value(await subject.put("there-and-back", read.revision));
  });

  test("a purge by the client is a tombstone", async () => {
    await kv.create("purged", "older");
    await kv.purge("purged");
    const read = value(await subject.read("purged"));
    if (read.kind !== "tombstone") throw new Error(`Expected a tombstone, got ${read.kind}`);
    value(await subject.put("purged", read.revision));
  });

  test("values that no node wrote are tolerated", async () => {
    const values: [string, Uint8Array][] = [
      ["empty", new Uint8Array(0)],
      ["binary", new Uint8Array([0, 255, 254, 10, 13])],
      ["huge", new Uint8Array(700_000).fill(120)],
    ];
    for (const [name, bytes] of values) {
      const revision = await admin.put("leases", `odd-${name}`, bytes);
      expect(value(await subject.read(`odd-${name}`))).toMatchObject({ kind: "entry", revision });
      value(await subject.put(`odd-${name}`, revision));
    }
    const revision = await admin.put("leases-tenures", "odd", "not a record");
    expect(value(await subject.readTenure("odd"))).toEqual({ revision, record: null });
    expect(value(await subject.history("odd"))).toEqual([]);
  });
});
