import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { tryBecomeProgram } from "../../src/sys/job.ts";

function ignoredSignals(): string {
  return /^SigIgn:.*$/m.exec(readFileSync("/proc/self/status", "latin1"))![0];
}

test("a program that cannot be run leaves us as we were, with the signals that we ignore", () => {
  const before = ignoredSignals();
  const missing = Buffer.from("/nonexistent/program");
  tryBecomeProgram({ path: missing, argv: [missing], env: [] });
  expect(ignoredSignals()).toBe(before);
  // SIGPIPE is number 13.
  expect(BigInt(`0x${before.split("\t")[1]}`) >> 12n & 1n).toBe(1n);
});
