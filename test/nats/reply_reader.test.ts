import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type Reply, ReplyReader } from "../../src/nats/reply_reader.ts";

const PREFIX = "_INBOX.abc.";

/** A protocol message; `ours` is what has to come of it where it answers a request of ours. */
interface Message {
  readonly bytes: Buffer;
  readonly ours: { id: number; reply: Reply } | null;
}

function plain(subject: string, text: string): Buffer {
  return Buffer.from(`MSG ${subject} 7 ${Buffer.byteLength(text)}\r\n${text}\r\n`);
}

function withHeaders(subject: string, headers: string, text: string): Buffer {
  const [hdrs, total] = [headers.length, headers.length + Buffer.byteLength(text)];
  return Buffer.from(`HMSG ${subject} 7 ${hdrs} ${total}\r\n${headers}${text}\r\n`);
}

const text = fc.oneof(
  fc.constantFrom("", "\r\n", "MSG _INBOX.abc.9 1 1\r\nx\r\n", "PING\r\n", "é…"),
  fc.string({ maxLength: 40 }),
);
const id = fc.integer({ min: 1, max: 1e9 });

const message: fc.Arbitrary<Message> = fc.oneof(
  fc.tuple(id, text).map(([id, text]) => ({
    bytes: plain(PREFIX + id, text),
    ours: { id, reply: { text, status: 0 } },
  })),
  fc.tuple(id, text).map(([id, text]) => ({
    bytes: withHeaders(PREFIX + id, "NATS/1.0 503\r\n\r\n", text),
    ours: { id, reply: { text, status: 503 } },
  })),
  fc.tuple(id, text).map(([id, text]) => ({
    bytes: withHeaders(PREFIX + id, "NATS/1.0\r\nA: b\r\n\r\n", text),
    ours: { id, reply: { text, status: 0 } },
  })),
  text.map((text) => ({ bytes: plain("_INBOX.abcd.5", text), ours: null })),
  text.map((text) => ({
    bytes: withHeaders("$KV.x.s reply.to", "NATS/1.0\r\nA: b\r\n\r\n", text),
    ours: null,
  })),
  fc.constantFrom("PING\r\n", "PONG\r\n", "+OK\r\n", "-ERR 'no'\r\n", 'INFO {"a":1}\r\n')
    .map((line) => ({ bytes: Buffer.from(line), ours: null })),
);

describe("read()", () => {
  test("takes our replies and passes on all else, in order, however the stream is cut", () => {
    fc.assert(fc.property(
      fc.array(message, { maxLength: 12 }),
      fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 20 }),
      (messages, sizes) => {
        const taken: unknown[] = [];
        const reader = new ReplyReader(PREFIX, (id, reply) => taken.push({ id, reply }));
        const stream = Buffer.concat(messages.map(({ bytes }) => bytes));
        const passed: Buffer[] = [];
        for (let at = 0, i = 0; at < stream.length; i++) {
          const size = sizes[i % sizes.length];
          const rest = reader.read(stream.subarray(at, at + size));
          if (rest !== null) passed.push(Buffer.from(rest));
          at += size;
        }
        expect(taken).toEqual(messages.flatMap(({ ours }) => ours ?? []));
        const others = messages.filter(({ ours }) => ours === null).map(({ bytes }) => bytes);
        expect(Buffer.concat(passed).toString()).toBe(Buffer.concat(others).toString());
      },
    ));
  });
});
