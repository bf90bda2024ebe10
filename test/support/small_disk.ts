/** A disk that is soon full. */
import { appendFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { tempDir } from "./temp_dir.ts";

/** A file system of a few pages, unmounted at the end of the scope (`using`). */
export interface SmallDisk {
  readonly path: string;
  /** Takes all space that is left. */
  fill(): void;
  /** Gives that back. */
  empty(): void;
  /** Makes it read-only. */
  freeze(): void;
  [Symbol.dispose](): void;
}

function run(...command: string[]): string | null {
  const { exitCode, stderr } = Bun.spawnSync(command);
  return exitCode === 0 ? null : stderr.toString().trim() || `${command[0]} failed`;
}

/** Mounts one. */
export function smallDisk(sizeBytes: number): SmallDisk {
  const dir = tempDir();
  const path = join(dir.path, "disk");
  mkdirSync(path);
  const failed = run("mount", "-t", "tmpfs", "-o", `size=${sizeBytes}`, "tmpfs", path);
  if (failed) {
    dir[Symbol.dispose]();
    throw new Error(failed);
  }
  const ballast = join(path, "ballast");
  return {
    path,
    fill() {
      // By large pieces, and then page by page what the last of them found no room for.
      for (const bytes of [65_536, 4_096]) {
        try {
          for (;;) appendFileSync(ballast, "x".repeat(bytes));
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
        }
      }
    },
    empty: () => rmSync(ballast),
    freeze: () => void run("mount", "-o", "remount,ro", path),
    [Symbol.dispose]() {
      // Lazily: a test that failed may have left files open, and its own error is the one to see.
      const stuck = run("umount", "--lazy", path);
      if (stuck) throw new Error(stuck);
      dir[Symbol.dispose]();
    },
  };
}

/** Why no disk can be mounted here, or null. */
export const noSmallDisk: string | null = (() => {
  try {
    smallDisk(65_536)[Symbol.dispose]();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
})();
if (noSmallDisk) console.warn(`Tests with a full disk are skipped: ${noSmallDisk}`);
