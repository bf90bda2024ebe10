import { expect, test } from "bun:test";
import { visible, visibleJson } from "../../src/sys/visible.ts";

/** One of each kind that a terminal obeys, hides, or lays out otherwise than it is read. */
const HIDDEN = [
  "\0",
  "\x07",
  "\n",
  "\r",
  "\t",
  "\x1b",
  "\x7f",
  "\x85",
  "\x9b", // CSI in one character
  "\xa0", // a blank that is none
  "\xad",
  "\u061c",
  "\u115f", // a letter without shape
  "\u200b",
  "\u200d",
  "\u2028",
  "\u2029",
  "\u202e", // from here on right to left
  "\u2066",
  "\u3000",
  "\ufe0f",
  "\ufeff",
  "\ud800", // half of a character
  "\u{e0041}", // a letter that is only a tag
];

test.each(HIDDEN.map((each) => [each.codePointAt(0)!.toString(16), each]))(
  "visible() spells U+%s, once",
  (_, character) => {
    const shown = visible(`a${character}b`);
    expect(shown).toMatch(/^a\\[nrt]b$|^a\\x[0-9a-f]{2}b$|^a\\u\{[0-9a-f]+\}b$/);
    expect(visible(shown)).toBe(shown);
  },
);

test("visible() leaves alone what people write", () => {
  const text = `host-1 (http://[::1]:80) "été" ñ 日本語 Ελλάδα שלום 🦊 \\ %`;
  expect(visible(text)).toBe(text);
});

test("visibleJson() is the same value, and has nothing hidden in it", () => {
  const value = { [HIDDEN.join("")]: HIDDEN, plain: "日本語 \\u001b" };
  const json = visibleJson(JSON.stringify(value));
  expect(JSON.parse(json)).toEqual(value);
  expect(visible(json)).toBe(json);
});
