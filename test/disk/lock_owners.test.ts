import { expect, test } from "bun:test";
import { lockHeirs } from "../../src/disk/lock_owners.ts";
import { lockFiles, makeStore, mustLock } from "../support/lock_files.ts";
import { reap } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

test("lockHeirs() tells who has the locks that were passed on, by file, and nobody else", async () => {
  using dir = tempDir();
  const locks = lockFiles(dir.path);
  const paths = ["passed", "kept", "theirs", "free"].map((store) => makeStore(locks, store));
  const [passed, , theirs] = paths;
  const children: Bun.Subprocess[] = [];
  try {
    for (const store of ["passed", "kept"]) {
      const lock = mustLock(locks, store);
      children.push(
        Bun.spawn(["sleep", "600"], { stdio: ["ignore", "ignore", "ignore", lock.fd] }),
      );
      if (store === "passed") lock.close();
    }
    // A lock that somebody took himself, on a file that is ours to pass.
    children.push(Bun.spawn(["flock", "--no-fork", theirs, "sleep", "600"]));
    // Opened only, not by the locked opening.
    children.push(Bun.spawn(["sleep", "600"], {
      stdio: ["ignore", "ignore", "ignore", Bun.file(passed)],
    }));
    for (const { pid } of children) reap(pid);
    await until(
      "the other has it locked",
      () => Bun.spawnSync(["flock", "-n", theirs, "true"]).exitCode,
    );
    expect(Object.fromEntries(lockHeirs(paths, process.pid))).toEqual({
      [passed]: [children[0].pid],
    });
  } finally {
    for (const child of children) child.kill("SIGKILL");
  }
});
