/**
 * Opening a lock file without being led elsewhere.
 * @module
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  openSync,
  type Stats,
} from "node:fs";
import type { LockFailure } from "../ports/lock_file.ts";
import { codeOf, reasonOf } from "../sys/errno.ts";
import { factsOf, type FileFacts, openFile } from "../sys/file.ts";

/** Readable by the group, for people who look; written by the agent alone. */
const MODE = 0o640;

/**
 * Never through a symlink at the end of the path, never waiting for a FIFO's other end, never
 * making a terminal ours. Whoever opens adds O_CLOEXEC: only a child that is handed the descriptor
 * has it.
 */
const FLAGS = constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

/** A regular file, open for reading and writing, and what it was when opened. */
export interface OpenFile extends FileFacts {
  readonly kind: "open";
  readonly fd: number;
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
    const facts = factsOf(fd);
    if (facts.isFile) return { kind: "open", fd, ...facts };
    const stat = fstatSync(fd);
    closeSync(fd);
    return notAFile(store, path, stat);
  } catch (error) {
    closeSync(fd);
    return failure(store, path, error);
  }
}

function openOrCreate(path: string): number {
  // Somebody may create or remove it between our two tries; more than once is no accident.
  for (let tries = 3;; tries--) {
    try {
      return openFile(path, FLAGS);
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

function statOrNothing(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function notAFile(store: string, path: string, stat: Stats): LockFailure {
  return {
    kind: "error",
    message: `Cannot use lock file ${path} of store ${store}: it is ${sortOf(stat)}, not a ` +
      `regular file; remove it, and the agent makes a new one`,
  };
}

function sortOf(stat: Stats): string {
  if (stat.isSymbolicLink()) return "a symbolic link";
  if (stat.isDirectory()) return "a directory";
  if (stat.isFIFO()) return "a FIFO";
  if (stat.isSocket()) return "a socket";
  return "a device";
}
