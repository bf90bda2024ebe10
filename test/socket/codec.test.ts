import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type BadRequest,
  encodeError,
  encodeNotification,
  encodeResult,
  INVALID_REQUEST,
  PARSE_ERROR,
  type Request,
  RequestDecoder,
} from "../../src/socket/codec.ts";
import { MAX_REQUEST_BYTES } from "../../src/socket/protocol.ts";

type Incoming = Request | BadRequest;

function decodeAll(...chunks: (string | Uint8Array)[]): Incoming[] {
  const decoder = new RequestDecoder();
  const all: Incoming[] = [];
  for (const chunk of chunks) {
    decoder.push(Buffer.from(chunk as string));
    for (let next = decoder.next(); next !== null; next = decoder.next()) all.push(next);
  }
  const last = decoder.end();
  return last === null ? all : [...all, last];
}

function codeOf(message: Incoming): number | null {
  return message.kind === "bad" ? message.error.code : null;
}

/** A line as a client may send it: mostly requests, some nonsense, no newline inside. */
const anyLine = fc.oneof(
  fc.record({
    jsonrpc: fc.constant("2.0"),
    id: fc.oneof(fc.string({ unit: "grapheme" }), fc.integer(), fc.double(), fc.constant(null)),
    method: fc.string({ unit: "binary" }),
    params: fc.jsonValue(),
  }, { requiredKeys: ["jsonrpc", "method"] }).map((request) =>
    Buffer.from(JSON.stringify(request))
  ),
  fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes.filter((byte) => byte !== 10))),
  fc.constantFrom("", "\r", "[]", "{}", "null", "{", '"', '{"jsonrpc":"2.0","id":1}').map((text) =>
    Buffer.from(text)
  ),
);

describe("RequestDecoder", () => {
  test("next() gives the same messages when the bytes are split anyhow", () => {
    fc.assert(fc.property(
      fc.array(anyLine, { maxLength: 12 }),
      fc.array(fc.nat(), { maxLength: 30 }),
      fc.boolean(),
      (lines, cuts, ended) => {
        const text = lines.flatMap((line) => [line, Buffer.from("\n")]);
        const bytes = Buffer.concat(ended ? text : text.slice(0, -1));
        const at = cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b);
        const pieces = [0, ...at].map((start, i) => bytes.subarray(start, at[i] ?? bytes.length));
        expect(decodeAll(...pieces)).toEqual(decodeAll(bytes));
      },
    ));
  });

  test("next() gives the same messages when they are taken late", () => {
    fc.assert(fc.property(fc.array(anyLine, { maxLength: 12 }), (lines) => {
      const bytes = Buffer.concat(lines.flatMap((line) => [line, Buffer.from("\n")]));
      const decoder = new RequestDecoder();
      for (const byte of bytes) decoder.push(Buffer.from([byte]));
      const all: Incoming[] = [];
      for (let next = decoder.next(); next !== null; next = decoder.next()) all.push(next);
      expect(all).toEqual(decodeAll(bytes));
      expect(decoder.bufferedBytes).toBe(0);
    }));
  });

  test("next() gives what was encoded when a request is well-formed", () => {
    fc.assert(fc.property(fc.string({ unit: "binary" }), fc.jsonValue(), (method, params) => {
      const line = `${JSON.stringify({ jsonrpc: "2.0", id: 7, method, params })}\n`;
      expect(decodeAll(line)).toEqual([
        { kind: "request", id: "7", method, params: JSON.parse(JSON.stringify(params)) },
      ]);
    }));
  });

  test.each([
    "1",
    "0",
    "-5",
    "9007199254740991",
    "9007199254740993",
    "12345678901234567890",
    "0.1",
    "1.0",
    "100e-2",
    "-0",
    "1e400",
    '""',
    '"a"',
    '"\\u0000 \\" \\\\"',
    '"é😀"',
    '"\\ud800"',
    "null",
  ])("next() keeps the id exactly when it is %s", (id) => {
    const params = '{"id":5,"x":[{"id":6.5}]}';
    const [request] = decodeAll(`{"jsonrpc":"2.0","id":${id},"method":"m","params":${params}}\n`);
    expect(request).toMatchObject({ kind: "request", id });
  });

  test.each(["true", "[]", "{}", "[1]"])("next() refuses the id when it is %s", (id) => {
    const [message] = decodeAll(`{"jsonrpc":"2.0","id":${id},"method":"m"}\n`);
    expect(message).toMatchObject({ kind: "bad", id: "null" });
    expect(codeOf(message)).toBe(INVALID_REQUEST);
  });

  test("next() takes the character that stands for bad UTF-8 when it was sent as such", () => {
    const line = '{"jsonrpc":"2.0","id":"\uFFFD","method":"m"}\n';
    expect(decodeAll(line)[0]).toMatchObject({ kind: "request", id: '"\uFFFD"' });
  });

  test("next() gives a notification when there is no id", () => {
    expect(decodeAll('{"jsonrpc":"2.0","method":"m"}\n')).toEqual([
      { kind: "request", id: null, method: "m", params: undefined },
    ]);
  });

  test.each<[string, string | Uint8Array, number, string]>([
    ["is not JSON", "guard me\n", PARSE_ERROR, "null"],
    ["is cut off", '{"jsonrpc":"2.0","id":1,"met', PARSE_ERROR, "null"],
    ["is not UTF-8", new Uint8Array([34, 0xc0, 0x80, 34, 10]), PARSE_ERROR, "null"],
    ["is a batch", '[{"jsonrpc":"2.0","id":1,"method":"m"}]\n', INVALID_REQUEST, "null"],
    ["is a number", "5\n", INVALID_REQUEST, "null"],
    ["is null", "null\n", INVALID_REQUEST, "null"],
    ["has no version", '{"id":3,"method":"m"}\n', INVALID_REQUEST, "3"],
    ["has version 1.0", '{"jsonrpc":"1.0","id":3,"method":"m"}\n', INVALID_REQUEST, "3"],
    ["has version 2", '{"jsonrpc":2,"id":3,"method":"m"}\n', INVALID_REQUEST, "3"],
    ["has no method", '{"jsonrpc":"2.0","id":"x"}\n', INVALID_REQUEST, '"x"'],
    [
      "has a method that is no string",
      '{"jsonrpc":"2.0","id":3,"method":5}\n',
      INVALID_REQUEST,
      "3",
    ],
    ["is an answer", '{"jsonrpc":"2.0","id":3,"result":{}}\n', INVALID_REQUEST, "3"],
  ])("next() gives an error when the line %s", (_, line, code, id) => {
    const messages = decodeAll(line);
    expect(messages).toHaveLength(1);
    expect(messages[0]).toMatchObject({ kind: "bad", id });
    expect(codeOf(messages[0])).toBe(code);
  });

  test("next() does not touch a prototype when a key is __proto__", () => {
    const [request] = decodeAll(
      '{"__proto__":{"method":"evil"},"jsonrpc":"2.0","id":1,"method":"m",' +
        '"params":{"__proto__":{"store":"evil"}}}\n',
    );
    expect(request).toMatchObject({ kind: "request", method: "m" });
    expect(({} as { store?: string }).store).toBeUndefined();
    const inherited = decodeAll('{"__proto__":{"jsonrpc":"2.0","id":1,"method":"m"}}\n');
    expect(codeOf(inherited[0])).toBe(INVALID_REQUEST);
  });

  test("next() takes the last when a key is there twice, as JSON.parse does", () => {
    const [request] = decodeAll('{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}\n');
    expect(request).toMatchObject({ id: "2", method: "b" });
  });

  test("next() refuses what nests deeper than 1,000 levels, unparsed: that would hold up all others", () => {
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    const request = (params: string, id = "1") =>
      decodeAll(`{"jsonrpc":"2.0","id":${id},"method":"m","params":${params}}\n`)[0];
    expect(request(nested(999)).kind).toBe("request");
    expect(codeOf(request(nested(1_000)))).toBe(INVALID_REQUEST);
    expect(codeOf(request(nested(500_000)))).toBe(INVALID_REQUEST);
    expect(codeOf(decodeAll(`${"[".repeat(1_000_000)}\n`)[0])).toBe(INVALID_REQUEST);
    // Width is not depth, nor are brackets in a string, whatever is escaped in it.
    expect(request(`[${"[],".repeat(5_000)}1]`).kind).toBe("request");
    const text = JSON.stringify({ x: '\\"[[[{'.repeat(2_000) + "\\" });
    expect(request(text).kind).toBe("request");
    expect(codeOf(decodeAll(`{"x":"${"[".repeat(5_000)}\n`)[0])).toBe(PARSE_ERROR);
  });

  test("next() tells the text of an odd number as id only of a line that is not long", () => {
    const request = (params: string) =>
      decodeAll(`{"jsonrpc":"2.0","id":1.50,"method":"m","params":${params}}\n`)[0];
    expect(request("{}")).toMatchObject({ id: "1.50" });
    expect(codeOf(request(`{"x":"${"y".repeat(5_000)}"}`))).toBe(INVALID_REQUEST);
  });

  test("next() passes over lines that are empty, also with carriage returns", () => {
    const request = '{"jsonrpc":"2.0","id":1,"method":"m"}';
    expect(decodeAll(`\n\r\n\n${request}\r\n\r\n\n`)).toHaveLength(1);
    expect(decodeAll("\n", "\r", "\n", "\r")).toEqual([]);
  });

  test("next() takes a line of exactly 1 MiB and refuses one byte more, once", () => {
    const frame = '{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":""}}';
    const fitting = frame.replace('""', `"${"x".repeat(MAX_REQUEST_BYTES - frame.length)}"`);
    expect(fitting.length).toBe(MAX_REQUEST_BYTES);
    expect(decodeAll(`${fitting}\n`)[0].kind).toBe("request");
    const pieces = [fitting.slice(0, 1000), fitting.slice(1000), "\n"];
    expect(decodeAll(...pieces)[0].kind).toBe("request");

    const after = '{"jsonrpc":"2.0","id":2,"method":"m"}\n';
    for (const chunks of [[` ${fitting}\n${after}`], [` ${fitting}`, "\n", after]]) {
      const messages = decodeAll(...chunks);
      expect(messages.map(codeOf)).toEqual([INVALID_REQUEST, null]);
    }
  });

  test("push() holds back no more than a line when one never ends", () => {
    const decoder = new RequestDecoder();
    const errors: Incoming[] = [];
    const chunk = Buffer.alloc(65_536, 0x78);
    for (let i = 0; i < 400; i++) {
      decoder.push(chunk);
      for (let next = decoder.next(); next !== null; next = decoder.next()) errors.push(next);
      expect(decoder.bufferedBytes).toBeLessThanOrEqual(MAX_REQUEST_BYTES);
    }
    expect(errors.map(codeOf)).toEqual([INVALID_REQUEST]);
    decoder.push(Buffer.from('end\n{"jsonrpc":"2.0","id":2,"method":"m"}\n'));
    expect(decoder.next()).toMatchObject({ kind: "request", id: "2" });
  });

  test("push() costs as much a byte when a line comes in single bytes, however long it is", () => {
    function costOf(bytes: number): number {
      const decoder = new RequestDecoder();
      const byte = Buffer.from("x");
      const start = performance.now();
      for (let i = 0; i < bytes; i++) {
        decoder.push(byte);
        decoder.next();
      }
      return (performance.now() - start) / bytes;
    }
    costOf(100_000);
    // Were each byte to copy what came before, the long one would cost 32 times as much a byte.
    expect(costOf(1_000_000) / costOf(31_250)).toBeLessThan(8);
  });
});

describe("encode…()", () => {
  test("encodeResult() gives one line that says what was put in", () => {
    fc.assert(fc.property(fc.jsonValue(), fc.string({ unit: "binary" }), (result, id) => {
      const line = encodeResult(JSON.stringify(id), result);
      expect(line.indexOf("\n")).toBe(line.length - 1);
      const plain = JSON.parse(JSON.stringify(result));
      expect(JSON.parse(line)).toEqual({
        jsonrpc: "2.0",
        id: JSON.parse(JSON.stringify(id)),
        result: plain,
      });
    }));
  });

  test("encodeError() and encodeNotification() give one line each", () => {
    expect(encodeError("null", { code: -1, message: "a\nb" })).toBe(
      '{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"a\\nb"}}\n',
    );
    expect(encodeNotification("lost", { token: "t" })).toBe(
      '{"jsonrpc":"2.0","method":"lost","params":{"token":"t"}}\n',
    );
  });
});
