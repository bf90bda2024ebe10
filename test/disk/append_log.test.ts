import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppendLog } from "../../src/disk/append_log.ts";
import { openedSince, openFds } from "../support/fds.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { tempDir } from "../support/temp_dir.ts";

const DURABLE = { durable: true };

test("append() is in the file when it returns, and read back by open()", () => {
  using dir = tempDir();
  const path = join(dir.path, "log");
  const { log, lines, tail } = AppendLog.open(path, DURABLE);
  expect([lines, tail]).toEqual([[], ""]);
  expect(log.append(["one"])).toBeNull();
  expect(log.append(["two", "three"])).toBeNull();
  expect(readFileSync(path, "utf8")).toBe("one\ntwo\nthree\n");
  expect(log.size).toBe(statSync(path).size);
  log.close();
  const again = AppendLog.open(path, DURABLE);
  expect(again.lines).toEqual(["one", "two", "three"]);
  again.log.close();
});

test("append() does not continue a line that a crash cut short", () => {
  using dir = tempDir();
  const path = join(dir.path, "log");
  writeFileSync(path, "one\ntw");
  const { log, lines, tail } = AppendLog.open(path, DURABLE);
  expect([lines, tail]).toEqual([["one"], "tw"]);
  log.append(["three"]);
  log.close();
  const again = AppendLog.open(path, DURABLE);
  expect([again.lines, again.tail]).toEqual([["one", "three"], ""]);
  again.log.close();
});

test("rewrite() replaces the file in one step, and appending goes on in the new one", async () => {
  using dir = tempDir();
  const path = join(dir.path, "log");
  const before = openFds();
  const { log } = AppendLog.open(path, DURABLE);
  log.append(["one"]);
  const ino = statSync(path).ino;
  expect(log.rewrite(["two"])).toBeNull();
  expect(statSync(path).ino).not.toBe(ino);
  expect(log.append(["three"])).toBeNull();
  expect(readFileSync(path, "utf8")).toBe("two\nthree\n");
  expect(existsSync(path + ".new")).toBe(false);
  log.close();
  // What is being flushed is closed by the flush.
  while (openedSince(before).length > 0) await Bun.sleep(1);
});

test("rewrite() leaves everything as it was when the new file cannot be made", () => {
  using dir = tempDir();
  const path = join(dir.path, "log");
  const { log } = AppendLog.open(path, { durable: false });
  log.append(["one"]);
  mkdirSync(path + ".new");
  const before = openFds();
  expect(log.rewrite(["two"])).toBe(
    `Cannot rewrite ${path}: illegal operation on a directory (EISDIR)`,
  );
  expect(openedSince(before)).toEqual([]);
  expect(log.append(["three"])).toBeNull();
  expect(readFileSync(path, "utf8")).toBe("one\nthree\n");
  log.close();
});

test.skipIf(noSmallDisk !== null)(
  "append() takes back what did not fit when the disk is full",
  () => {
    using disk = smallDisk(64 * 1024);
    const path = join(disk.path, "log");
    const { log } = AppendLog.open(path, { durable: false });
    log.append(["one"]);
    disk.fill();
    // The rest of the page is there, the next one is not: a part is written.
    expect(log.append(["x".repeat(8_000)])).toBe(`Cannot write ${path}: no space left on device`);
    expect(readFileSync(path, "utf8")).toBe("one\n");
    expect(log.size).toBe(4);
    expect(log.append(["two"])).toBeNull();
    expect(log.append(["y".repeat(4_087)])).toBeNull();
    expect(log.append(["z"])).toBe(`Cannot write ${path}: no space left on device (ENOSPC)`);
    expect(log.rewrite(["three"])).toMatch(/ENOSPC/);
    expect(existsSync(path + ".new")).toBe(false);
    disk.empty();
    expect(log.append(["z"])).toBeNull();
    expect(readFileSync(path, "utf8")).toBe(`one\ntwo\n${"y".repeat(4_087)}\nz\n`);
    log.close();
  },
);
