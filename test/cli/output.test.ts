import { expect, test } from "bun:test";
import { obstacleOf } from "../../src/cli/refusal.ts";
import { painter, shortened, Styled, table } from "../../src/cli/output.ts";
import { BusyError } from "../../src/client/mod.ts";

test("table() aligns by what a terminal shows", () => {
  expect(table([["a", "b"], ["日本", "c"], ["x\x1b[31m", "d"]])).toEqual([
    "a          b",
    "日本       c",
    "x\\x1b[31m  d",
  ]);
});

test("table() lets one long cell stick out of its own row alone", () => {
  const long = "s".repeat(128);
  expect(table([["STORE", "STATE"], [long, "held"], ["one", "free"]])).toEqual([
    "STORE  STATE",
    `${long}  held`,
    "one    free",
  ]);
});

test("table() has no blanks at the end of a row", () => {
  expect(table([["a", "long"], ["b", ""]])).toEqual(["a  long", "b"]);
});

test("shortened() keeps both ends of a long code, and 32 characters in all", () => {
  expect(shortened("a".repeat(32))).toBe("a".repeat(32));
  const code = shortened(`begin-${"x".repeat(117)}-end`);
  expect(code).toHaveLength(32);
  expect(code).toMatch(/^begin-x+…x+-end$/);
});

test("painter() paints only where it may, and what it painted is not mistaken for text", () => {
  expect(painter(false)("red", "FAIL")).toBe("FAIL");
  expect(painter(true)("red", "FAIL")).toEqual(new Styled("\x1b[31mFAIL\x1b[0m"));
});

test("obstacleOf() is what is in the way, without advice", () => {
  const error = new BusyError("Cannot guard store s: process 7 has its turn; wait longer");
  expect(obstacleOf(error)).toBe("process 7 has its turn");
  const told = new BusyError(
    "Cannot guard store s: process 7 on this host has its turn (one; two, and other things); wait",
  );
  expect(obstacleOf(told))
    .toBe("process 7 on this host has its turn (one; two, and other things)");
  const awaited = new BusyError(
    "Cannot guard store s: its lock file is locked by another process, and other guards wait for " +
      "it, too; wait longer or try again",
  );
  expect(obstacleOf(awaited)).toBe("its lock file is locked by another process");
});
