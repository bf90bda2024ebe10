/** Lock files under a directory of a test's own. */
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { BootClock, SystemTimers } from "../../src/disk/boot_clock.ts";
import { FlockLockFiles } from "../../src/disk/lock_files.ts";
import type { Clock, Timers } from "../../src/ports/clock.ts";
import type { Fence, HeldLock, LockFailure } from "../../src/ports/lock_file.ts";

/** The result of a try. */
export type Result = HeldLock | LockFailure;

/** The real thing in `directory`, with the machine's time unless another is given. */
export function lockFiles(directory: string, time?: Clock & Timers): FlockLockFiles {
  const ports = { clock: time ?? new BootClock(), timers: time ?? new SystemTimers() };
  return new FlockLockFiles(join(directory, "{store}/lease.lock"), ports);
}

/** Makes a store's directory; returns the path of its lock file. */
export function makeStore(files: FlockLockFiles, store: string): string {
  const path = files.path(store);
  mkdirSync(dirname(path), { recursive: true });
  return path;
}

/** Tries once. */
export function lockNow(files: FlockLockFiles, store: string): Result {
  const results: Result[] = [];
  files.lock(store, 0, (result) => results.push(result));
  if (results.length !== 1) throw new Error(`done was called ${results.length} times`);
  return results[0]!;
}

/** Locks a store that nobody else has locked. */
export function mustLock(files: FlockLockFiles, store: string): HeldLock {
  const result = lockNow(files, store);
  if (result.kind !== "locked") throw new Error(JSON.stringify(result));
  return result;
}

/** A fence of some tenure. */
export function fenceOf(store: string, epoch: number): Fence {
  const at = "2025-01-01T00:00:00.000Z";
  return { store, node: "node-a", incarnation: "i1", epoch, pid: process.pid, at };
}
