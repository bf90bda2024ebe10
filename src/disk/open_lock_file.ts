/**
 * Opening a lock file without being led elsewhere.
 * @module
 */
import {
  type BigIntStats,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  openSync,
} from "node:fs";
import type { LockFailure } from "../ports/lock_file.ts";
import { codeOf, reasonOf } from "../sys/errno.ts";

/** Readable by the group, for people who look; written by the agent alone. */
const MODE = 0o640;

/**
 * Never through a symlink at the end of the path, never waiting for a FIFO's other end, never
 * making a terminal ours. The runtime adds O_CLOEXEC: only a child that is handed the descriptor
 * has it.
 */
const FLAGS = constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

/** A regular file, open for reading and writing, and what it was when opened. */
export interface OpenFile {
  readonly kind: "open";
  readonly fd: number;
  readonly dev: bigint;
  readonly ino: bigint;
  readonly size: number;
}

/**
 * Opens the lock file, creating it if need be, with mode 0640 whatever the umask. A file that was
 * already there keeps its mode.
 */
export function openLockFile(store: string, path: string): OpenFile | LockFailure {
  let fd: number;
  try {
    fd = openOrCreate(path);
  } catch (error) {
    return failure(store, path, error);
  }
  try {
    const stat = fstatSync(fd, { bigint: true });
    if (stat.isFile()) {
      return { kind: "open", fd, dev: stat.dev, ino: stat.ino, size: Number(stat.size) };
    }
    closeSync(fd);
    return notAFile(store, path, stat);
  } catch (error) {
    closeSync(fd);
    return failure(store, path, error);
  }
}

/** Whether `path` names, itself and not through a symlink, the file that was opened. */
export function names(path: string, file: { readonly dev: bigint; readonly ino: bigint }): boolean {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stat !== undefined && stat.dev === file.dev && stat.ino === file.ino;
}

function openOrCreate(path: string): number {
  // Somebody may create or remove it between our two tries; more than once is no accident.
  for (let tries = 3;; tries--) {
    try {
      return openSync(path, FLAGS);
    } catch (error) {
      if (codeOf(error) !== "ENOENT") throw error;
    }
    try {
      return create(path);
    } catch (error) {
      if (codeOf(error) !== "EEXIST" || tries === 0) throw error;
    }
  }
}

function create(path: string): number {
  const fd = openSync(path, FLAGS | constants.O_CREAT | constants.O_EXCL, MODE);
  try {
    fchmodSync(fd, MODE); // the umask may have taken bits away
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function failure(store: string, path: string, error: unknown): LockFailure {
  const code = codeOf(error);
  if (code === "ENOENT" || code === "ENOTDIR") return { kind: "unknown_store", path };
  const stat = code === "EACCES" ? undefined : statOrNothing(path);
  if (stat && !stat.isFile()) return notAFile(store, path, stat);
  return {
    kind: "error",
    message: `Cannot open lock file ${path} of store ${store}: ${reasonOf(error)}; ` +
      `the agent must be able to read and write it, and to create it in its directory`,
  };
}

function statOrNothing(path: string): BigIntStats | undefined {
  try {
    return lstatSync(path, { bigint: true, throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function notAFile(store: string, path: string, stat: BigIntStats): LockFailure {
  return {
    kind: "error",
    message: `Cannot use lock file ${path} of store ${store}: it is ${sortOf(stat)}, not a ` +
      `regular file; remove it, and the agent makes a new one`,
  };
}

function sortOf(stat: BigIntStats): string {
  if (stat.isSymbolicLink()) return "a symbolic link";
  if (stat.isDirectory()) return "a directory";
  if (stat.isFIFO()) return "a FIFO";
  if (stat.isSocket()) return "a socket";
  return "a device";
}
