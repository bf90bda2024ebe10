import { expect, test } from "bun:test";
import { openSync } from "node:fs";
import { codeOf, ERRNO, reasonOf, SysError } from "../../src/sys/errno.ts";

function thrown(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  throw new Error("did not throw");
}

test("SysError() says what was done and why it failed", () => {
  const error = new SysError("flock", ERRNO.ENOLCK);
  expect(error.code).toBe("ENOLCK");
  expect(error.message).toBe("flock: no locks available (ENOLCK)");
});

test("SysError() keeps a number that has no name", () => {
  expect(new SysError("flock", 9_999).message).toBe("flock: unknown error (errno 9999)");
});

test("reasonOf() leaves out the path that node:fs repeats", () => {
  const error = thrown(() => openSync("/nowhere/at/all", "r"));
  expect(codeOf(error)).toBe("ENOENT");
  expect(reasonOf(error)).toBe("no such file or directory (ENOENT)");
});

test("reasonOf() takes what is no failed call", () => {
  expect(reasonOf(new Error("odd"))).toBe("odd");
  expect(reasonOf("odd")).toBe("odd");
  expect(codeOf(null)).toBeNull();
});
