import { expect, test } from "bun:test";
import { once } from "node:events";
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { BootClock } from "../../src/disk/boot_clock.ts";
import { lockOpenFile } from "../../src/disk/held_lock.ts";
import { FlockLockFiles } from "../../src/disk/lock_files.ts";
import { openLockFile } from "../../src/disk/open_lock_file.ts";
import { type Child, child } from "../support/child.ts";
import { FakeTime } from "../support/fake_time.ts";
import { openedSince, openFds } from "../support/fds.ts";
import {
  fenceOf,
  lockFiles,
  lockNow,
  makeStore,
  mustLock,
  type Result,
} from "../support/lock_files.ts";
import { tempDir } from "../support/temp_dir.ts";

/** flock(1) holding the lock until it is told to end. */
async function holder(path: string): Promise<Child> {
  const other = child(["flock", "--exclusive", path, "sh", "-c", "echo locked; read x"]);
  await other.line();
  return other;
}

/** Whether another process gets the lock at once. */
async function isFree(path: string): Promise<boolean> {
  return await child(["flock", "--nonblock", path, "true"]).ended() === 0;
}

/** Has nothing left open whatever `call` does. */
async function leavingNothingOpen(call: () => void | Promise<void>): Promise<void> {
  const before = openFds();
  await call();
  expect(openedSince(before)).toEqual([]);
}

test("new FlockLockFiles() refuses a template that cannot name a file a store", () => {
  const time = new FakeTime();
  const create = (template: string) => () =>
    new FlockLockFiles(template, { clock: time, timers: time });
  expect(create("/var/lib/zit/lease.lock")).toThrow(
    'Cannot use the lock path "/var/lib/zit/lease.lock": it does not contain {store}, so all ' +
      "stores would share one lock; write it like /var/lib/zit/{store}/lease.lock",
  );
  expect(create("")).toThrow("does not contain {store}");
  expect(create("/x/{store}/")).toThrow("names a directory");
  expect(create("/x/{store}/../lock")).toThrow("loses {store}");
  expect(create("/x/{store}/\0")).toThrow("zero byte");
});

test("path() puts the code into the template, nested and dotted ones too", () => {
  const time = new FakeTime();
  const files = new FlockLockFiles("/s/{store}/.lock-{store}", { clock: time, timers: time });
  expect(files.path("a")).toBe("/s/a/.lock-a");
  expect(files.path("team/re.po")).toBe("/s/team/re.po/.lock-team/re.po");
  expect(() => files.path("../etc")).toThrow("Not a store code");
  // A code is not a pattern of replacement either; `$` is in no code, so this only concerns the path.
  expect(new FlockLockFiles("x/{store}", { clock: time, timers: time }).path("a")) //
    .toBe(join(process.cwd(), "x/a"));
});

test("lock() creates the file with mode 0640 whatever the umask", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  for (const umask of [0o077, 0o000, 0o777]) {
    const store = `umask-${umask}`;
    const path = makeStore(files, store);
    const before = process.umask(umask);
    try {
      mustLock(files, store).close();
    } finally {
      process.umask(before);
    }
    expect(statSync(path).mode & 0o7777).toBe(0o640);
  }
});

test("lock() leaves the mode of a file that was there as it is", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  writeFileSync(path, "");
  chmodSync(path, 0o600);
  mustLock(files, "s").close();
  expect(statSync(path).mode & 0o7777).toBe(0o600);
});

test("lock() excludes other processes until closed, and never removes the file", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "team/s");
  const lock = mustLock(files, "team/s");
  expect(lock.path).toBe(path);
  expect(lock.fence).toBeNull();
  expect(lock.current()).toBe(true);
  expect(await isFree(path)).toBe(false);
  lock.close();
  lock.close();
  expect(lock.current()).toBe(false);
  expect(await isFree(path)).toBe(true);
  expect(existsSync(path)).toBe(true);
});

test("lock() uses a description of its own each time (aws-c-common#1192, util-linux#2993)", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  lock.writeFence(fenceOf("s", 5));
  for (let i = 0; i < 3; i++) expect(lockNow(files, "s").kind).toBe("busy");
  readFileSync(path);
  expect(await isFree(path)).toBe(false);
  lock.close();
  const again = mustLock(files, "s");
  lock.close();
  expect(await isFree(path)).toBe(false);
  expect(again.current()).toBe(true);
  again.close();
});

test("lock() reports unknown_store when the directory is missing or is none", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  expect(lockNow(files, "s")).toEqual({ kind: "unknown_store", path: files.path("s") });
  writeFileSync(join(dir.path, "file"), "");
  expect(lockNow(files, "file").kind).toBe("unknown_store");
  expect(existsSync(join(dir.path, "s"))).toBe(false);
});

test("lock() reports an error when the code is none, and touches nothing", () => {
  using dir = tempDir();
  expect(lockNow(lockFiles(dir.path), "../x")).toEqual({
    kind: "error",
    message: 'Cannot lock: Not a store code: "../x"',
  });
});

test("lock() never follows a symlink, to a file or to nothing", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const target = join(dir.path, "target");
  symlinkSync(target, path);
  const expected = {
    kind: "error",
    message:
      `Cannot use lock file ${path} of store s: it is a symbolic link, not a regular file; ` +
      `remove it, and the agent makes a new one`,
  };
  expect(lockNow(files, "s")).toEqual(expected as Result);
  expect(existsSync(target)).toBe(false);
  writeFileSync(target, "untouched");
  await leavingNothingOpen(() => expect(lockNow(files, "s")).toEqual(expected as Result));
  expect(readFileSync(target, "utf8")).toBe("untouched");
  expect(await isFree(target)).toBe(true);
});

test("lock() refuses what is no regular file, and does not wait for it", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  await child(["mkfifo", makeStore(files, "fifo")]).ended();
  mkdirSync(makeStore(files, "directory"));
  await child(["mknod", makeStore(files, "device"), "c", "1", "3"]).ended();
  const server = createServer();
  await once(server.listen(makeStore(files, "socket")), "listening");
  await leavingNothingOpen(() => {
    for (
      const [store, sort] of Object.entries({
        fifo: "a FIFO",
        directory: "a directory",
        socket: "a socket",
        device: process.getuid!() === 0 ? "a device" : null,
      })
    ) {
      if (sort === null) continue; // only root can make one
      const result = lockNow(files, store);
      expect(result).toMatchObject({ kind: "error" });
      expect((result as { message: string }).message).toContain(
        `it is ${sort}, not a regular file`,
      );
    }
  });
  server.close();
});

test("lock() is busy and says what the file says when another process has it", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  writeFileSync(path, JSON.stringify(fenceOf("s", 7)) + "\n");
  await using other = await holder(path);
  await leavingNothingOpen(() => {
    const result = lockNow(files, "s");
    expect(result).toMatchObject({ kind: "busy", fence: fenceOf("s", 7), isLeft: false });
    expect((result as { owners?: unknown[] }).owners).toContainEqual({
      pid: other.pid,
      command: `flock --exclusive ${path} sh -c echo locked; read x`,
    });
  });
  await other.kill();
});

test("lock() names the background child that keeps the lock when the granted process is gone (ceph-qa-suite#583)", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  await using parent = child([
    "python3",
    "-u",
    "-c",
    `
import fcntl, json, os, subprocess, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, json.dumps({"epoch": 3, "pid": os.getpid()}).encode() + b"\\n")
daemon = subprocess.Popen(["sleep", "61"], pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(daemon.pid)`,
    path,
  ]);
  const pid = Number(await parent.line());
  await parent.ended();
  const result = lockNow(files, "s");
  process.kill(pid, "SIGKILL");
  expect(result).toMatchObject({
    kind: "busy",
    fence: { epoch: 3, pid: parent.pid },
    isLeft: true,
    owners: [{ pid, command: "sleep 61" }],
  });
});

test("lock() looks for owners at most once a second", () => {
  using dir = tempDir();
  const time = new FakeTime();
  const files = lockFiles(dir.path, time);
  makeStore(files, "s");
  const lock = mustLock(files, "s");
  expect(lockNow(files, "s")).toHaveProperty("owners");
  expect(lockNow(files, "s")).not.toHaveProperty("owners");
  time.after(1_000, () => {});
  time.step();
  expect(lockNow(files, "s")).toHaveProperty("owners");
  lock.close();
});

test("lock() polls from 1 ms up to 25 ms until the time is over, and then once more", () => {
  using dir = tempDir();
  const time = new FakeTime();
  const files = lockFiles(dir.path, time);
  makeStore(files, "s");
  const lock = mustLock(files, "s");
  const results: Result[] = [];
  const untilMs = time.bootMs() + 100;
  files.lock("s", untilMs, (result) => results.push(result));
  while (time.step()) expect(time.bootMs()).toBeLessThanOrEqual(untilMs);
  expect(time.delaysMs).toEqual([1, 2, 4, 8, 16, 25, 25, 19]);
  expect(results.map((result) => result.kind)).toEqual(["busy"]);
  lock.close();
});

test("lock() tries once when the time is over already, or no time", () => {
  using dir = tempDir();
  const time = new FakeTime();
  const files = lockFiles(dir.path, time);
  makeStore(files, "s");
  for (const untilMs of [-Infinity, 0, NaN]) {
    const results: Result[] = [];
    files.lock("s", untilMs, (result) => results.push(result));
    expect(results.map((result) => result.kind)).toEqual(["locked"]);
    expect(lockNow(files, "s").kind).toBe("busy");
    files.lock("s", untilMs, (result) => results.push(result));
    expect(results.map((result) => result.kind)).toEqual(["locked", "busy"]);
    (results[0] as { close(): void }).close();
  }
  expect(time.delaysMs).toEqual([]);
});

test("lock() gets the lock when the process that has it is killed", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  await using other = await holder(path);
  await leavingNothingOpen(async () => {
    const locked = new Promise<Result>((done) => files.lock("s", Infinity, done));
    // The shell that flock(1) started has the lock, too: its input ends with flock's.
    await other.kill();
    const result = await locked;
    expect(result.kind).toBe("locked");
    if (result.kind === "locked") result.close();
  });
});

test("lock() gives up no earlier than asked", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  makeStore(files, "s");
  const lock = mustLock(files, "s");
  const clock = new BootClock();
  const untilMs = clock.bootMs() + 60;
  const result = await new Promise<Result>((done) => files.lock("s", untilMs, done));
  expect(clock.bootMs()).toBeGreaterThanOrEqual(untilMs);
  expect(result.kind).toBe("busy");
  lock.close();
});

test("lock() has no file open while it waits, and takes nothing once cancelled", async () => {
  using dir = tempDir();
  const time = new FakeTime();
  const files = lockFiles(dir.path, time);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  await leavingNothingOpen(() => {
    const cancel = files.lock("s", Infinity, () => {
      throw new Error("called after it was cancelled");
    });
    expect(time.pending).toBe(1);
    time.step();
    cancel();
    cancel();
    expect(time.pending).toBe(0);
  });
  lock.close();
  expect(time.step()).toBe(false);
  expect(await isFree(path)).toBe(true);
});

test("lock() leaves a lock alone that is cancelled after it was got", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  makeStore(files, "s");
  const results: Result[] = [];
  files.lock("s", 0, (result) => results.push(result))();
  expect(results[0]).toMatchObject({ kind: "locked" });
  expect(lockNow(files, "s").kind).toBe("busy");
  (results[0] as { close(): void }).close();
});

test("lock() goes to the new file when the old one is replaced while it waits", async () => {
  using dir = tempDir();
  const time = new FakeTime();
  const files = lockFiles(dir.path, time);
  const path = makeStore(files, "s");
  const old = mustLock(files, "s");
  const results: Result[] = [];
  files.lock("s", Infinity, (result) => results.push(result));
  writeFileSync(path + ".other", JSON.stringify({ epoch: 8 }));
  renameSync(path + ".other", path);
  time.step();
  expect(results[0]).toMatchObject({ kind: "locked", fence: { epoch: 8 } });
  expect(await isFree(path)).toBe(false);
  expect(old.current()).toBe(false);
  (results[0] as { close(): void }).close();
  old.close();
});

test("lockOpenFile() finds that the file was replaced between opening and locking", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const changes: (() => void)[] = [
    () => renameSync(path, path + ".away"),
    () => rmSync(dirname(path), { recursive: true }),
    () => (renameSync(path, path + ".away"), writeFileSync(path, "")),
    () => (renameSync(path, path + ".away"), symlinkSync(path + ".away", path)),
  ];
  for (const change of changes) {
    makeStore(files, "s");
    rmSync(path, { force: true });
    const file = openLockFile("s", path);
    if (file.kind !== "open") throw new Error(file.kind);
    change();
    expect(lockOpenFile(path, file)).toEqual({ kind: "moved" });
    closeSync(file.fd);
  }
});

test("current() is false when the store was removed, or made again", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  rmSync(dirname(path), { recursive: true });
  expect(lock.current()).toBe(false);
  expect(lockNow(files, "s").kind).toBe("unknown_store");
  makeStore(files, "s");
  expect(lock.current()).toBe(false);
  const again = mustLock(files, "s");
  expect(lock.current()).toBe(false);
  expect(again.current()).toBe(true);
  lock.close();
  expect(await isFree(path)).toBe(false);
  again.close();
});

test("current() is false when a symlink to the locked file took its place", () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  const lock = mustLock(files, "s");
  renameSync(path, path + ".away");
  symlinkSync(path + ".away", path);
  expect(lock.current()).toBe(false);
  lock.close();
});

test("lock() refuses a file with other data than a lock's line, and leaves it as it is", async () => {
  using dir = tempDir();
  const files = lockFiles(dir.path);
  const path = makeStore(files, "s");
  writeFileSync(path, "precious\n");
  const result = lockNow(files, "s");
  expect(result).toEqual({
    kind: "error",
    message: expect.stringMatching(/lease\.lock of store s: it holds other data .*empty it/),
  });
  expect(readFileSync(path, "utf8")).toBe("precious\n");
  // Nor does it stay locked.
  expect(await isFree(path)).toBe(true);
  writeFileSync(path, "");
  mustLock(files, "s").close();
});
