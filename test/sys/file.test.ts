import { expect, test } from "bun:test";
import {
  closeSync,
  constants,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { ERRNO, SysError } from "../../src/sys/errno.ts";
import { factsOf, FileBuffer, isNamedBy, openFile } from "../../src/sys/file.ts";
import { tempDir } from "../support/temp_dir.ts";

const { O_RDONLY, O_RDWR, O_NOFOLLOW } = constants;

function numberOf(act: () => unknown): number | null {
  try {
    act();
    return null;
  } catch (error) {
    if (!(error instanceof SysError)) throw error;
    return error.errno;
  }
}

test("openFile() opens what the path names, and factsOf() tells what that is", () => {
  using temp = tempDir();
  const dir = temp.path;
  const path = join(dir, "grüße, 世界");
  writeFileSync(path, "12345");
  const fd = openFile(path, O_RDWR);
  const { ino, size } = statSync(path, { bigint: true });
  expect(factsOf(fd)).toMatchObject({ ino, size: Number(size), isFile: true });
  expect(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8")).toMatch(/flags:\s+02\d*2$/m);
  closeSync(fd);
  const directory = openFile(dir, O_RDONLY);
  expect(factsOf(directory).isFile).toBe(false);
  closeSync(directory);
});

test("openFile() says why when it cannot open", () => {
  using temp = tempDir();
  const dir = temp.path;
  const path = join(dir, "link");
  symlinkSync("nowhere", path);
  expect(numberOf(() => openFile(path, O_RDWR | O_NOFOLLOW))).toBe(ERRNO.ELOOP);
  expect(numberOf(() => openFile(join(dir, "none"), O_RDWR))).toBe(ERRNO.ENOENT);
  expect(numberOf(() => openFile(dir, O_RDWR))).toBe(ERRNO.EISDIR);
  // Neither is cut to a path that names something else.
  writeFileSync(join(dir, "none"), "");
  expect(numberOf(() => openFile(join(dir, "none\0x"), O_RDWR))).toBe(ERRNO.EINVAL);
  const long = "/" + ".//".repeat(1_400) + dir;
  expect(existsSync(long.slice(0, 4_000))).toBe(true);
  expect(numberOf(() => openFile(long, O_RDONLY))).toBe(ERRNO.ENAMETOOLONG);
});

test("isNamedBy() is false when the path is gone, names another file, or is a link to ours", () => {
  using temp = tempDir();
  const dir = temp.path;
  const path = join(dir, "file");
  writeFileSync(path, "");
  const fd = openFile(path, O_RDONLY);
  const facts = factsOf(fd);
  expect(isNamedBy(path, facts)).toBe(true);
  const moved = join(dir, "moved");
  renameSync(path, moved);
  expect(isNamedBy(path, facts)).toBe(false);
  expect(isNamedBy(join(moved, "below"), facts)).toBe(false);
  symlinkSync(moved, path);
  expect(isNamedBy(path, facts)).toBe(false);
  rmSync(path);
  writeFileSync(path, "");
  expect(isNamedBy(path, facts)).toBe(false);
  rmSync(path);
  linkSync(moved, path);
  expect(isNamedBy(path, facts)).toBe(true);
  // The same number in another file system.
  expect(isNamedBy(path, { ...facts, dev: facts.dev + 1n })).toBe(false);
  closeSync(fd);
  const deep = join(dir, "d".repeat(256), "file");
  expect(numberOf(() => isNamedBy(deep, facts))).toBe(ERRNO.ENAMETOOLONG);
});

test("FileBuffer reads from and writes to the beginning of a file, wherever it was read before", () => {
  using temp = tempDir();
  const dir = temp.path;
  const path = join(dir, "file");
  writeFileSync(path, "0123456789");
  const fd = openFile(path, O_RDWR);
  const buffer = new FileBuffer(4);
  for (let i = 0; i < 2; i++) {
    expect(buffer.readFrom(fd)).toBe(4);
    expect(buffer.bytes.toString()).toBe("0123");
  }
  buffer.bytes.write("abcd");
  expect(buffer.writeTo(fd, 3)).toBe(3);
  expect(readFileSync(path, "utf8")).toBe("abc3456789");
  expect(new FileBuffer(64).readFrom(fd)).toBe(10);
  closeSync(fd);
  const readOnly = openFile(path, O_RDONLY);
  expect(numberOf(() => buffer.writeTo(readOnly, 1))).toBe(ERRNO.EBADF);
  closeSync(readOnly);
  expect(numberOf(() => buffer.readFrom(readOnly))).toBe(ERRNO.EBADF);
});

test("openFile() and factsOf() go on when the garbage collector has run and memory is used again", () => {
  using temp = tempDir();
  const dir = temp.path;
  mkdirSync(join(dir, "sub"));
  const path = join(dir, "sub", "file");
  writeFileSync(path, "12345");
  const kept: Uint8Array[] = [];
  for (let i = 0; i < 20; i++) {
    Bun.gc(true);
    for (let j = 0; j < 500; j++) kept.push(new Uint8Array(new ArrayBuffer(8)).fill(0xff));
    const fd = openFile(path, O_RDONLY);
    expect(factsOf(fd).size).toBe(5);
    closeSync(fd);
  }
  expect(kept.length).toBe(10_000);
});
