import { expect, test } from "bun:test";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { tryFlock } from "../../src/sys/flock.ts";
import * as flockModule from "../../src/sys/flock.ts";
import { child } from "../support/child.ts";
import { tempDir } from "../support/temp_dir.ts";

/** Whether flock(1), another process with a description of its own, gets the lock at once. */
async function isFree(path: string): Promise<boolean> {
  await using other = child(["flock", "--nonblock", path, "true"]);
  return await other.ended() === 0;
}

test("tryFlock() excludes other processes until the descriptor is closed", async () => {
  using dir = tempDir();
  const path = join(dir.path, "lock");
  const fd = openSync(path, "w");
  expect(tryFlock(fd)).toBe(true);
  expect(await isFree(path)).toBe(false);
  closeSync(fd);
  expect(await isFree(path)).toBe(true);
});

test("tryFlock() returns false when another description of this process has it", () => {
  using dir = tempDir();
  const path = join(dir.path, "lock");
  const [one, two] = [openSync(path, "w"), openSync(path, "w")];
  expect(tryFlock(one)).toBe(true);
  expect(tryFlock(one)).toBe(true);
  expect(tryFlock(two)).toBe(false);
  closeSync(two);
  closeSync(one);
});

test("tryFlock() keeps the lock when another description of the file is closed (aws-c-common#1192, util-linux#2993)", async () => {
  using dir = tempDir();
  const path = join(dir.path, "lock");
  const fd = openSync(path, "w");
  expect(tryFlock(fd)).toBe(true);
  closeSync(openSync(path, "r+"));
  readFileSync(path);
  expect(await isFree(path)).toBe(false);
  closeSync(fd);
});

test("tryFlock() throws when the descriptor is not open", () => {
  expect(() => tryFlock(1_000_000)).toThrow("flock: bad file descriptor (EBADF)");
});

test("flock.ts offers no way to unlock, which would free the lock under those it was passed to", () => {
  expect(Object.keys(flockModule)).toEqual(["tryFlock"]);
});
