import { expect, test } from "bun:test";
import fc from "fast-check";
import { isStoreCode, MAX_STORE_CODE_LENGTH } from "../../src/lease/store_code.ts";

const word = fc.stringMatching(/^[A-Za-z0-9_-]{1,12}$/);
const code = fc.tuple(word, fc.array(fc.tuple(fc.constantFrom(".", "/"), word), { maxLength: 4 }))
  .map(([first, rest]) => first + rest.map(([mark, next]) => mark + next).join(""))
  .filter((text) => !text.startsWith("-"));

test("isStoreCode() accepts segments between single marks", () => {
  fc.assert(fc.property(code, (text) => isStoreCode(text)));
});

test("isStoreCode() accepts nothing that leaves its directory, names another key or looks like a flag", () => {
  fc.assert(fc.property(fc.string(), (text) => {
    if (!isStoreCode(text)) return;
    expect(text.length).toBeGreaterThan(0);
    expect(text.length).toBeLessThanOrEqual(MAX_STORE_CODE_LENGTH);
    expect(text).not.toMatch(/^[-./]|[./]$|[./][./]|[^A-Za-z0-9_./-]/);
  }));
});

test("isStoreCode() refuses a code with one foreign character anywhere", () => {
  const foreign = fc.constantFrom(" ", "*", ">", "\n", "\0", "é", "..", "//", "./", "\\", "$");
  fc.assert(fc.property(code, foreign, fc.nat(), (text, mark, at) => {
    const index = at % (text.length + 1);
    expect(isStoreCode(text.slice(0, index) + mark + text.slice(index))).toBe(false);
  }));
});

test.each([
  ["", false],
  ["a", true],
  ["-a", false],
  ["a-", true],
  ["a.b/c", true],
  ["a..b", false],
  ["../a", false],
  ["/a", false],
  ["a/", false],
  [".a", false],
  ["a\n", false],
  ["a".repeat(128), true],
  ["a".repeat(129), false],
])("isStoreCode(%p) is %p", (text, expected) => {
  expect(isStoreCode(text)).toBe(expected);
});
