import { expect, test } from "bun:test";
import { tokenSource } from "../../src/daemon/tokens.ts";

test("tokenSource() never gives a token twice, and each is 128 bits that fit an environment and a line", () => {
  const sources = [tokenSource(), tokenSource()];
  // More than are drawn at once.
  const tokens = sources.flatMap((next) => Array.from({ length: 1_000 }, next));
  expect(new Set(tokens).size).toBe(2_000);
  for (const token of tokens) expect(token).toMatch(/^[A-Za-z0-9_-]{22}$/);
  // No two in a row of a draw have bytes in common, as they would if pieces of it overlapped.
  const bytes = tokens.map((token) => Buffer.from(token, "base64url"));
  const overlapping = bytes.filter((each, i) =>
    i > 0 && each.subarray(0, 8).equals(bytes[i - 1]!.subarray(8))
  );
  expect(overlapping).toEqual([]);
});
