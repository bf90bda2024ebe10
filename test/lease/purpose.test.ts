import { expect, test } from "bun:test";
import { shownPurpose } from "../../src/lease/purpose.ts";

test.each([
  ["nightly push", "nightly push"],
  ["  two\r\nlines\tand a tab ", "two lines and a tab"],
  ["\x1b[2Jred\u202eder\u200b \u0085", "[2Jred der"],
  ["half \ud83d of a character", "half of a character"],
  ["Übernahme 夜間 😀", "Übernahme 夜間 😀"],
  [" \u200b\n", ""],
  ["x".repeat(200), "x".repeat(200)],
  ["x".repeat(1_024), `${"x".repeat(199)}…`],
  ["😀".repeat(200), "😀".repeat(200)],
  ["😀".repeat(300), `${"😀".repeat(199)}…`],
])("shownPurpose() of %j is one line that can be shown", (purpose, shown) => {
  expect(shownPurpose(purpose)).toBe(shown);
});
