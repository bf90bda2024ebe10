import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  formatDuration,
  MAX_DURATION_MS,
  parseDurationMs,
  roughDuration,
} from "../../src/cli/duration.ts";

test.each([
  ["0", 0],
  ["0s", 0],
  ["500ms", 500],
  ["15s", 15_000],
  ["2m", 120_000],
  ["1h", 3_600_000],
  ["1m30s", 90_000],
  ["1.5s", 1_500],
  ["1.1m", 66_000],
  ["0.001s", 1],
])("parseDurationMs() reads %s", (text, ms) => {
  expect(parseDurationMs(text)).toBe(ms);
});

test.each([
  ["15", "say its unit, as in 15s or 15ms"],
  ["1.5", "say its unit"],
  ["-5s", "it cannot be negative"],
  ["", "write it as in"],
  ["5 s", "write it as in"],
  ["5S", "write it as in"],
  ["s", "write it as in"],
  ["1d", "write it as in"],
  [".5s", "write it as in"],
  ["1e3s", "write it as in"],
  ["5s ", "write it as in"],
  ["0.0001s", "finer than a millisecond"],
  ["1.5ms", "finer than a millisecond"],
  ["600h", "the longest is 24 days"],
])("parseDurationMs() refuses %p and says why", (text, why) => {
  expect(() => parseDurationMs(text)).toThrow(RangeError);
  expect(() => parseDurationMs(text)).toThrow(why);
});

test("formatDuration() is read back as the same duration", () => {
  fc.assert(fc.property(fc.integer({ min: 0, max: MAX_DURATION_MS }), (ms) => {
    expect(parseDurationMs(formatDuration(ms))).toBe(ms);
  }));
});

test.each([[0, "0"], [1, "1ms"], [90_500, "1m30s500ms"], [7_200_000, "2h"]])(
  "formatDuration() writes %d ms as %s",
  (ms, text) => expect(formatDuration(ms)).toBe(text),
);

test.each([
  [-5, "less than 1s"],
  [999, "less than 1s"],
  [61_999, "1m1s"],
  [3_599_999, "59m59s"],
  [3_661_000, "1h1m"],
  [47 * 3_600_000 + 60_000, "47h1m"],
  [48 * 3_600_000, "2d"],
  [76 * 3_600_000 + 60_000, "3d4h"],
])("roughDuration() says the size of %d ms", (ms, text) => {
  expect(roughDuration(ms)).toBe(text);
});
