import { describe, expect, test } from "bun:test";
import { decodeEntry, decodeTenure, decodeWrite, HeaderTemplate } from "../../src/nats/wire.ts";
import { parseTenure } from "../../src/nats/records.ts";
import type { TenureRead } from "../../src/ports/coordinator.ts";
import type { Reply } from "../../src/nats/reply_reader.ts";

function reply(body: unknown, status = 0): Reply {
  return { text: typeof body === "string" ? body : JSON.stringify(body), status };
}

function refusal(err_code: number, description: string): Reply {
  return reply({ error: { code: 400, err_code, description }, stream: "KV_leases", seq: 0 });
}

function stored(options: { data?: string | Uint8Array; headers?: string; seq?: number }): Reply {
  const { data, headers, seq = 7 } = options;
  const base64 = (value: string | Uint8Array) => Buffer.from(value).toString("base64");
  return reply({
    message: {
      subject: "$KV.leases.s",
      seq,
      ...(data === undefined ? {} : { data: base64(data) }),
      ...(headers === undefined ? {} : { hdrs: base64(headers) }),
    },
  });
}

describe("decodeWrite()", () => {
  test("is ok with the new revision when acknowledged", () => {
    expect(decodeWrite(reply({ stream: "KV_leases", seq: 12 }))).toEqual({ kind: "ok", value: 12 });
  });

  test("is a conflict with the newest revision when the answer is 10071 (nats.go#2097)", () => {
    expect(decodeWrite(refusal(10071, "wrong last sequence: 41")))
      .toEqual({ kind: "conflict", lastRevision: 41 });
  });

  test("is a conflict without a revision when the answer is 10164 (nats-server#7281)", () => {
    expect(decodeWrite(refusal(10164, "wrong last sequence"))).toEqual({ kind: "conflict" });
  });

  test("is unknown with the coordinator's words when the answer is another error", () => {
    const outcome = decodeWrite(refusal(10077, "maximum messages exceeded"));
    expect(outcome.kind).toBe("unknown");
    expect(outcome).toMatchObject({ reason: expect.stringContaining("maximum messages exceeded") });
  });

  test("is unknown when there are no responders, or the answer makes no sense", () => {
    expect(decodeWrite(reply("", 503)))
      .toMatchObject({ kind: "unknown", reason: expect.stringContaining("no responders") });
    for (const nonsense of ["", "not JSON", "{}", '{"seq":"5"}']) {
      expect(decodeWrite(reply(nonsense)).kind).toBe("unknown");
    }
  });
});

describe("decodeEntry()", () => {
  test("is none when there is no message", () => {
    expect(decodeEntry(refusal(10037, "no message found")))
      .toEqual({ kind: "ok", value: { kind: "none" } });
  });

  test("is unknown when the stream is not there", () => {
    expect(decodeEntry(refusal(10059, "stream not found")).kind).toBe("unknown");
  });

  test.each([
    ["DEL", "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"],
    ["PURGE", "NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n"],
    ["a limit marker", "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n"],
  ])("is a tombstone for %s", (_name, headers) => {
    expect(decodeEntry(stored({ headers })))
      .toEqual({ kind: "ok", value: { kind: "tombstone", revision: 7 } });
  });

  test("reads headers whatever their letters and blanks", () => {
    const headers = "NATS/1.0\r\nzit-incarnation:x1\r\nZIT-ADDRESS:  http://h \r\nodd\r\n\r\n";
    expect(decodeEntry(stored({ data: "n", headers })))
      .toMatchObject({ value: { incarnation: "x1", address: "http://h" } });
  });

  test("takes the first of headers of one name, as nats.go does", () => {
    const headers = "NATS/1.0\r\nZit-Incarnation: x1\r\nZit-Incarnation: x2\r\n\r\n";
    expect(decodeEntry(stored({ data: "n", headers }))).toMatchObject({
      value: { incarnation: "x1" },
    });
  });

  test.each([
    ["nothing", undefined, ""],
    ["bytes", new Uint8Array([0xff, 0xfe, 0]), "\ufffd\ufffd\0"],
    ["a megabyte", "x".repeat(1 << 20), "x".repeat(255)],
  ])("takes a value of %s for a node's name", (_name, data, node) => {
    expect(decodeEntry(stored({ data })))
      .toEqual({
        kind: "ok",
        value: { kind: "entry", revision: 7, node, incarnation: null, address: null },
      });
  });
});

describe("decodeTenure()", () => {
  test.each([
    ["not JSON", "{"],
    ["an array", "[]"],
    ["null", "null"],
    ["without an epoch", '{"node":"n","incarnation":"i","acquired_at":"t"}'],
    ["with an epoch of text", '{"node":"n","incarnation":"i","epoch":"5","acquired_at":"t"}'],
    ["with a negative epoch", '{"node":"n","incarnation":"i","epoch":-5,"acquired_at":"t"}'],
    ["with an empty node", '{"node":"","incarnation":"i","epoch":5,"acquired_at":"t"}'],
  ])("keeps the revision when the record is %s", (_name, data) => {
    expect(decodeTenure(stored({ data })))
      .toEqual({ kind: "ok", value: { revision: 7, record: null } });
  });

  test.each([
    ["15000", 15_000],
    ["1500.5", 1_500.5],
    ["0", undefined],
    ["-5", undefined],
    ["1e99", undefined],
    ["", undefined],
    ["soon", undefined],
  ])("tells a TTL beside the record of %p as %p", (text, ttlMs) => {
    const data = '{"node":"n","incarnation":"i","epoch":5,"acquired_at":"t"}';
    const headers = `NATS/1.0\r\nZit-Ttl-Ms: ${text}\r\n\r\n`;
    const outcome = decodeTenure(stored({ data, headers }));
    expect(outcome).toMatchObject({ kind: "ok", value: { record: { epoch: 5 } } });
    expect((outcome as { value: TenureRead }).value.record?.ttlMs).toBe(ttlMs);
  });

  test("has no record, but its revision, when the key was deleted", () => {
    expect(decodeTenure(stored({ headers: "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n" })))
      .toEqual({ kind: "ok", value: { revision: 7, record: null } });
  });
});

describe("parseTenure()", () => {
  test("drops members that it does not know", () => {
    const text = '{"node":"n","incarnation":"i","epoch":5,"acquired_at":"t","later":1}';
    expect(parseTenure(new TextEncoder().encode(text)))
      .toEqual({ node: "n", incarnation: "i", address: null, epoch: 5, acquired_at: "t" });
  });
});

describe("HeaderTemplate", () => {
  test("expecting() writes the block that a server parses", () => {
    const headers = new HeaderTemplate({ "Zit-Incarnation": "i1" });
    expect(headers.expecting(1_796_002_325_409_000)).toBe(
      "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1796002325409000\r\n" +
        "Zit-Incarnation: i1\r\n\r\n",
    );
  });
});
