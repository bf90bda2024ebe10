import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  formatBlank,
  formatFence,
  isForeign,
  MAX_LINE_BYTES,
  parseFence,
  SECTOR_BYTES,
} from "../../src/disk/fence.ts";
import type { Fence } from "../../src/ports/lock_file.ts";

const FENCE: Fence = {
  store: "team/repo",
  node: "node-a",
  incarnation: "i1",
  epoch: 1_712_345_678_901,
  pid: 42,
  at: "2025-01-01T00:00:00.000Z",
};

const anyFence: fc.Arbitrary<Fence> = fc.record({
  store: fc.string({ unit: "grapheme" }),
  node: fc.string({ unit: "grapheme", maxLength: 300 }),
  incarnation: fc.string(),
  epoch: fc.nat(Number.MAX_SAFE_INTEGER),
  pid: fc.nat(2 ** 22),
  at: fc.string(),
});

function bytes(text: string): Buffer {
  return Buffer.from(text);
}

function format(fence: Fence): Buffer {
  // Of anything but spaces and newlines, as a buffer is that was used before.
  const block = Buffer.alloc(MAX_LINE_BYTES, "x");
  const length = formatFence(fence, block);
  if (length === 0) throw new Error("too long");
  return block.subarray(0, length);
}

/** What a file holds after `block` was written over it and it was not yet cut. */
function over(file: Uint8Array, block: Uint8Array): Buffer {
  const result = Buffer.alloc(Math.max(file.byteLength, block.byteLength));
  result.set(file);
  result.set(block);
  return result;
}

test("formatFence() writes one line of JSON, padded to a sector", () => {
  const block = format(FENCE);
  expect(block.byteLength).toBe(SECTOR_BYTES);
  const text = Buffer.from(block).toString();
  expect(text.indexOf("\n")).toBe(SECTOR_BYTES - 1);
  expect(text.trimEnd()).toBe(
    '{"store":"team/repo","node":"node-a","incarnation":"i1","epoch":1712345678901,"pid":42,' +
      '"at":"2025-01-01T00:00:00.000Z"}',
  );
});

test("formatFence() leaves out what is no part of the record", () => {
  const more = { ...FENCE, token: "secret" };
  expect(Buffer.from(format(more)).toString()).not.toContain("secret");
});

test("formatFence() refuses when the line is longer than is ever read", () => {
  const rest = Buffer.from(format({ ...FENCE, node: "" })).toString().trimEnd().length;
  const longest = MAX_LINE_BYTES - 1 - rest;
  const block = Buffer.alloc(MAX_LINE_BYTES);
  expect(formatFence({ ...FENCE, node: "n".repeat(longest) }, block)).toBe(MAX_LINE_BYTES);
  expect(formatFence({ ...FENCE, node: "n".repeat(longest + 1) }, block)).toBe(0);
});

test("parseFence() reads back what formatFence() wrote, whatever was in the file before", () => {
  fc.assert(fc.property(anyFence, fc.uint8Array({ maxLength: 2_000 }), (fence, before) => {
    const block = format(fence);
    expect(block.byteLength % SECTOR_BYTES).toBe(0);
    expect(parseFence(over(before, block))).toEqual(fence);
  }));
});

test("parseFence() shows the whole record or its epoch or nothing when the line is cut anywhere", () => {
  fc.assert(fc.property(anyFence, fc.nat(600), (fence, length) => {
    const cut = parseFence(format(fence).subarray(0, length));
    if (cut) expect(cut.epoch).toBe(fence.epoch);
  }));
});

test("parseFence() loses no epoch that was written completely before the cut", () => {
  const text = JSON.stringify(FENCE);
  const complete = text.indexOf(',"pid"') + 1;
  for (let length = 0; length <= text.length; length++) {
    const epoch = parseFence(bytes(text.slice(0, length)))?.epoch ?? null;
    expect(epoch).toBe(length >= complete ? FENCE.epoch : null);
  }
});

test("parseFence() never throws and never invents an epoch when the content is anything", () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 5_000 }), (content) => {
    const fence = parseFence(Buffer.from(content));
    if (fence) expect(Buffer.from(content).toString()).toContain("epoch");
  }));
});

test("parseFence() returns null when the content shows no epoch", () => {
  for (
    const content of ["", "\n", "   \n", "12345\n", "[]", "null", '"epoch"', "{}", '{"epoch":"5"}'] //
      .concat('{"epoch":-1}', '{"epoch":1.5}', "\0".repeat(512), '\n{"epoch":5}')
  ) {
    expect([content, parseFence(bytes(content))]).toEqual([content, null]);
  }
});

test("parseFence() fences at the epoch of a record that lacks the rest", () => {
  const bare = { store: "", node: "", incarnation: "", pid: 0, at: "" };
  expect(parseFence(bytes('{"epoch":7}'))).toEqual({ ...bare, epoch: 7 });
  expect(parseFence(bytes('{"epoch":7,"pid":"x","node":3}\nmore'))).toEqual({ ...bare, epoch: 7 });
  expect(parseFence(bytes('{"epoch":1e300}'))?.epoch).toBe(1e300);
});

test("parseFence() takes the highest epoch when a line shows several but is no JSON", () => {
  expect(parseFence(bytes('{"epoch":9,"pi{"epoch":12,"pid":3}{"epoch":10}'))?.epoch).toBe(12);
  expect(parseFence(bytes('{"epoch":9,"x":{"epoch":12'))?.epoch).toBe(9);
});

test("isForeign() is never true of a line of ours, wherever it is cut and whatever it lies over", () => {
  const block = Buffer.alloc(MAX_LINE_BYTES, "x");
  expect(isForeign(block.subarray(0, formatBlank(block)))).toBe(false);
  fc.assert(fc.property(anyFence, fc.nat(600), (fence, length) => {
    expect(isForeign(format(fence).subarray(0, length))).toBe(false);
    // A power failure can leave zeros where bytes were not on disk yet.
    const zeroed = Buffer.from(format(fence)).fill(0, length);
    expect(isForeign(zeroed)).toBe(false);
  }));
});

test("isForeign() tells other data from what is nothing or shows an epoch", () => {
  for (const content of ["", "\n", " \n \n", "\0".repeat(512), '{"epoch":5}', '{"epoch":5,"x']) {
    expect([content, isForeign(bytes(content))]).toEqual([content, false]);
  }
  for (const content of ["12345\n", "precious", "\nx", "{}", '{"name":"x"}', "\x7fELF\0\0", "[]"]) {
    expect([content, isForeign(bytes(content))]).toEqual([content, true]);
  }
});
