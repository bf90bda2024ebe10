import { expect, test } from "bun:test";
import { closeSync, openSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseFence, SECTOR_BYTES } from "../../src/disk/fence.ts";
import type { Fence } from "../../src/ports/lock_file.ts";
import { type Child, child } from "../support/child.ts";
import { fenceOf, lockFiles, lockNow, makeStore, mustLock } from "../support/lock_files.ts";
import { noSmallDisk, smallDisk } from "../support/small_disk.ts";
import { tempDir } from "../support/temp_dir.ts";

const SUPPORT = JSON.stringify(import.meta.resolve("../support/lock_files.ts"));

/** Runs code with the lock files of `directory` as `files` in a process of its own. */
function inChild(directory: string, code: string): Child {
  return child([
    process.execPath,
    "-e",
    `import { fenceOf, lockFiles, lockNow, mustLock } from ${SUPPORT};
     const files = lockFiles(${JSON.stringify(directory)});
     ${code}`,
  ]);
}

async function isFree(path: string): Promise<boolean> {
  return await child(["flock", "--nonblock", path, "true"]).ended() === 0;
}

test("writeFence() leaves one line that other programs can read, and the next lock does", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  const fence = fenceOf("s", 12);
  expect(lock.writeFence(fence)).toBeNull();
  await using other = child([
    "python3",
    "-c",
    "import json, sys; print(json.dumps(json.load(open(sys.argv[1]))))",
    path,
  ]);
  expect(JSON.parse(await other.line())).toEqual(fence);
  lock.close();
  const again = mustLock(files, "s");
  expect(again.fence).toEqual(fence);
  again.close();
});

test("writeFence() replaces what was there, longer or shorter", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  writeFileSync(path, " ".repeat(10_000));
  const lock = mustLock(files, "s");
  expect(lock.fence).toBeNull();
  const long: Fence = { ...fenceOf("s", 2), node: "n".repeat(1_000) };
  for (const fence of [fenceOf("s", 1), long, fenceOf("s", 3)]) {
    expect(lock.writeFence(fence)).toBeNull();
    const content = readFileSync(path, "utf8");
    expect(JSON.parse(content)).toEqual(fence);
    expect(content.match(/\n/g)).toHaveLength(1);
  }
  expect(statSync(path).size).toBe(SECTOR_BYTES);
  lock.close();
});

test("writeFence() says why when the line is too long or the lock was given back", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  makeStore(files, "s");
  const lock = mustLock(files, "s");
  expect(lock.writeFence({ ...fenceOf("s", 2), node: "n".repeat(5_000) })).toContain("longer than");
  lock.close();
  // Whatever has the number now is not written into.
  const other = openSync(join(dir.path, "other"), "w+");
  expect(other).toBe(lock.fd);
  expect(lock.writeFence(fenceOf("s", 3))).toContain("was given back");
  expect(statSync(join(dir.path, "other")).size).toBe(0);
  closeSync(other);
});

test(
  "writeFence() leaves the old record or the new one when the writer is killed at any time",
  async () => {
    using dir = tempDir();
    const files = lockFiles(dir.path);
    const path = makeStore(files, "s");
    for (let run = 0; run < 10; run++) {
      await using writer = inChild(
        dir.path,
        `
      const lock = mustLock(files, "s");
      for (let epoch = 1; ; epoch++) {
        const node = epoch % 2 ? "a" : "b".repeat(700);
        lock.writeFence({ ...fenceOf("s", epoch), node, incarnation: String(epoch) });
        if (epoch === 1) console.log("writing");
      }`,
      );
      await writer.line();
      await writer.kill();
      const fence = parseFence(readFileSync(path));
      expect(fence?.incarnation).toBe(String(fence?.epoch));
      expect(fence?.node).toBe(fence!.epoch % 2 ? "a" : "b".repeat(700));
      expect(await isFree(path)).toBe(true);
    }
  },
  20_000,
);

test(
  "lock() never shows a mixture of two records when it is busy while they are written",
  async () => {
    using dir = tempDir();
    const files = lockFiles(dir.path);
    makeStore(files, "s");
    await using writer = inChild(
      dir.path,
      `
    const lock = mustLock(files, "s");
    lock.writeFence({ ...fenceOf("s", 1), incarnation: "1" });
    console.log("writing");
    for (let epoch = 1; ; epoch = epoch === 1 ? 2 ** 52 : 1) {
      lock.writeFence({ ...fenceOf("s", epoch), incarnation: String(epoch) });
    }`,
    );
    await writer.line();
    const seen = new Set<string>();
    for (let i = 0; i < 5_000; i++) {
      const result = lockNow(files, "s");
      if (result.kind !== "busy") throw new Error(result.kind);
      if (!result.fence) continue; // told as not known, rather than wrongly
      if (String(result.fence.epoch) !== result.fence.incarnation) {
        throw new Error(
          JSON.stringify(result),
        );
      }
      seen.add(result.fence.incarnation);
    }
    expect(seen.size).toBe(2);
  },
  20_000,
);

test("close() leaves the lock with a child it was passed to, also when this process is killed", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  await using agent = inChild(
    dir.path,
    `
    import { spawn } from "node:child_process";
    const lock = mustLock(files, "s");
    const command = spawn("sleep", ["60"], { stdio: ["ignore", "ignore", "ignore", lock.fd] });
    lock.close();
    console.log(command.pid, lockNow(files, "s").kind);
    setInterval(() => {}, 1_000);`,
  );
  const [pid, kind] = (await agent.line()).split(" ");
  expect(kind).toBe("busy");
  await agent.kill();
  expect(lockNow(files, "s")).toMatchObject({ kind: "busy", owners: [{ command: "sleep 60" }] });
  process.kill(Number(pid), "SIGKILL");
  const result = await new Promise((done) => void files.lock("s", Infinity, done));
  expect(result).toMatchObject({ kind: "locked", path });
  (result as { close(): void }).close();
});

test("lock() does not let children inherit the lock that were not given it", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  expect(readFileSync(`/proc/self/fdinfo/${lock.fd}`, "utf8")).toMatch(
    /^flags:\t0[0-7]*2[0-7]{6}$/m,
  );
  await using bystander = child(["sh", "-c", "echo started; read x"]);
  await bystander.line();
  lock.close();
  expect(await isFree(path)).toBe(true);
});

test("a lock given to a child is freed by the last descriptor only", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  const first = child(["sh", "-c", "echo; read x"], { fds: [lock.fd] });
  const second = child(["sh", "-c", "echo; read x"], { fds: [lock.fd] });
  await Promise.all([first.line(), second.line()]);
  await first.kill();
  expect(await isFree(path)).toBe(false);
  lock.close();
  expect(await isFree(path)).toBe(false);
  await second.kill();
  expect(await isFree(path)).toBe(true);
});

test.skipIf(noSmallDisk !== null)(
  "writeFence() says so when the disk is full, and needs no space to overwrite",
  () => {
    using disk = smallDisk(128 * 1024);
    const files = lockFiles(disk.path);
    makeStore(files, "old");
    const old = mustLock(files, "old");
    expect(old.writeFence(fenceOf("old", 1))).toBeNull();
    makeStore(files, "new");
    disk.fill();
    const fresh = mustLock(files, "new");
    expect(fresh.rewrite("new")).toMatch(/^Cannot write .* of store new into .*: no space left/);
    const failed = fresh.writeFence(fenceOf("new", 1));
    expect(failed).toMatch(/^Cannot write the fence of store new into .*: no space left on device/);
    expect(old.writeFence(fenceOf("old", 2))).toBeNull();
    expect(old.rewrite("old")).toBeNull();
    disk.empty();
    expect(fresh.rewrite("new")).toBeNull();
    expect(fresh.writeFence(fenceOf("new", 2))).toBeNull();
    fresh.close();
    old.close();
    for (const store of ["old", "new"]) {
      const again = mustLock(files, store);
      expect(again.fence).toEqual(fenceOf(store, 2));
      again.close();
    }
  },
);

test("rewrite() leaves what the file says, and of an empty one only the room for a line", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  for (const content of ["", JSON.stringify(fenceOf("s", 7)) + "\nmore"]) {
    writeFileSync(path, content);
    const lock = mustLock(files, "s");
    expect(lock.rewrite("s")).toBeNull();
    lock.close();
    expect(readFileSync(path, "utf8").trim()).toBe(content);
  }
});

test.skipIf(noSmallDisk !== null)("lock() says so when the file system is read-only", () => {
  using disk = smallDisk(128 * 1024);
  const files = lockFiles(disk.path);
  makeStore(files, "s");
  disk.freeze();
  const result = lockNow(files, "s");
  expect(result.kind).toBe("error");
  expect((result as { message: string }).message).toContain("read-only file system (EROFS)");
});

test("handOver() gives the lock on without its being free, read anew", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const first = mustLock(files, "s");
  expect(first.writeFence(fenceOf("s", 1))).toBeNull();
  writeFileSync(path, JSON.stringify(fenceOf("s", 9))); // by somebody who asks no lock
  const next = first.handOver()!;
  expect([next.fd, next.fence?.epoch, next.handOvers]).toEqual([first.fd, 9, 1]);
  first.close(); // it has nothing to close any more
  expect(await isFree(path)).toBe(false);
  expect(next.writeFence(fenceOf("s", 10))).toBeNull();
  expect(readFileSync(path, "utf8").length).toBe(SECTOR_BYTES);
  next.close();
  expect(await isFree(path)).toBe(true);
});

test("handOver() gives nothing on when somebody has written other data into the file", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  writeFileSync(path, "precious");
  expect(lock.handOver()).toBeNull();
  lock.close();
});

test("handOver() gives nothing on when the file was replaced, or another process has the descriptor", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const passed = mustLock(files, "s");
  passed.passed = true;
  expect(passed.handOver()).toBeNull();
  passed.close();
  const replaced = mustLock(files, "s");
  renameSync(path, `${path}.old`);
  expect(replaced.handOver()).toBeNull();
  replaced.close();
});

test("handOver() passes on how long the file is by now: a shorter line is all of it again", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  expect(lock.writeFence({ ...fenceOf("s", 1), node: "n".repeat(600) })).toBeNull();
  const next = lock.handOver()!;
  expect(next.writeFence(fenceOf("s", 2))).toBeNull();
  expect(statSync(path).size).toBe(SECTOR_BYTES);
  next.close();
});
