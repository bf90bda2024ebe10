/** Following a lock: whose it is, and whose it is no more. With real processes and flocks. */
import { expect, test } from "bun:test";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { lockMark, LockTrail } from "../../../src/cli/guard/lock_trail.ts";
import { tryFlock } from "../../../src/sys/flock.ts";
import { processState } from "../../../src/sys/proc.ts";
import { type Child, child } from "../../support/child.ts";
import { tempDir } from "../../support/temp_dir.ts";

function holder(pid: number): { pid: number; startTime: number } {
  return { pid, startTime: processState(pid)!.startTime };
}

/** Locks `path` by an opening of its own. */
function lock(path: string): number {
  const fd = openSync(path, "r+");
  expect(tryFlock(fd)).toBe(true);
  return fd;
}

/** Locks `path` and starts a process that has it. */
function grant(path: string): Child {
  const fd = lock(path);
  const command = child(["sleep", "1000"], { fds: [fd] });
  closeSync(fd);
  return command;
}

test("find() has all who have the lock while one is known, and those alone after the known one", async () => {
  using dir = tempDir();
  const path = join(dir.path, "lock");
  writeFileSync(path, "");
  const fd = lock(path);
  await using command = child(["sleep", "1000"], { fds: [fd] });
  await using escaped = child(["sleep", "1000"], { fds: [fd] });
  await using other = child(["sleep", "1000"]);
  const trail = new LockTrail(lockMark(fd, command.pid, process.pid)!);
  closeSync(fd);
  const all = [command, escaped, other].map(({ pid }) => holder(pid));
  expect(trail.find(all, new Set([command.pid])).sort()).toEqual(
    [command.pid, escaped.pid].sort(),
  );
  await command.kill();
  // Known by now.
  expect(trail.find(all, new Set())).toEqual([escaped.pid]);
});

test("find() leaves the next grant's processes alone, for good", async () => {
  using dir = tempDir();
  const path = join(dir.path, "lock");
  writeFileSync(path, "");
  const fd = lock(path);
  await using command = child(["sleep", "1000"], { fds: [fd] });
  const trail = new LockTrail(lockMark(fd, command.pid, process.pid)!);
  closeSync(fd);
  const before = [holder(command.pid)];
  expect(trail.find(before, new Set([command.pid]))).toEqual([command.pid]);
  await command.kill();
  // By another opening of the same file, and started later, like a command of the next guard.
  await using next = grant(path);
  expect(trail.find([...before, holder(next.pid)], new Set())).toEqual([]);
  expect(trail.find([holder(next.pid)], new Set([next.pid]))).toEqual([]);
});

test("find() knows nobody where the first look finds none of the command with the lock", async () => {
  using dir = tempDir();
  const path = join(dir.path, "lock");
  writeFileSync(path, "");
  const fd = openSync(path, "r+");
  await using command = child(["sleep", "1000"]);
  const trail = new LockTrail(lockMark(fd, command.pid, process.pid)!);
  closeSync(fd);
  await using next = grant(path);
  const all = [command, next].map(({ pid }) => holder(pid));
  expect(trail.find(all, new Set([command.pid]))).toEqual([]);
});
