/**
 * The state directory itself: made if missing, and locked for the life of the process.
 * @module
 */
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { otherWriter } from "../sys/directory.ts";
import { codeOf, reasonOf } from "../sys/errno.ts";
import { EXIT_CANNOT_CREATE } from "../sys/exit.ts";
import { factsOf, isNamedBy } from "../sys/file.ts";
import { tryFlock } from "../sys/flock.ts";

/** For the agent, and its group to look at. */
const DIRECTORY_MODE = 0o750;
const FILE_MODE = 0o640;
const FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** More than a line of ours takes. */
const MAX_LINE_BYTES = 1_024;

/** Why a state directory cannot be used: a sentence for the person who started the agent. */
export class StateDirError extends Error {
  override readonly name = "StateDirError";
  /** The exit status to end with. */
  readonly exit = EXIT_CANNOT_CREATE;
  /** The process that uses the directory; null where that is not the reason, or nobody knows. */
  readonly pid: number | null;

  constructor(
    message: string,
    options: { readonly pid?: number | null; readonly cause?: unknown },
  ) {
    super(message, { cause: options.cause });
    this.pid = options.pid ?? null;
  }
}

/** Who locks the directory, for the message that another agent will give. */
export interface Occupant {
  readonly node: string;
  readonly incarnation: string;
}

/** A locked directory. */
export interface DirectoryLock {
  /** Which file is locked: a copy of the directory has another. */
  readonly identity: string;
  /**
   * Why another agent could start on the directory although we are here, and what to do; null while
   * none can. Looks at the disk.
   */
  readonly problem: string | null;
  /** Gives the directory back. */
  close(): void;
}

/**
 * Makes the directory if it is missing (its parents too, as `mkdir -p` would; itself with mode
 * 0750) and locks it.
 *
 * @throws {StateDirError}
 */
export function occupy(directory: string, occupant: Occupant): DirectoryLock {
  try {
    makeDirectory(directory);
    return lock(directory, occupant);
  } catch (error) {
    if (error instanceof StateDirError) throw error;
    throw unusable(directory, error);
  }
}

/** The error for a directory that does not let us do what `cause` tells. */
export function unusable(directory: string, cause: unknown): StateDirError {
  const { path } = cause as { path?: unknown };
  const culprit = typeof path === "string" ? path : directory;
  const what = (culprit === directory ? "" : `${culprit}: `) + reasonOf(cause) + ownership(culprit);
  const message = `Cannot use state directory ${directory}: ${what}; make it writable for the ` +
    `agent, or choose another with --state-dir`;
  return new StateDirError(message, { cause });
}

function makeDirectory(directory: string): void {
  const parent = dirname(directory);
  try {
    mkdirSync(parent, { recursive: true, mode: 0o755 });
  } catch (error) {
    if (codeOf(error) === "EEXIST") throw new Error(`${parent} is not a directory`);
    throw error;
  }
  try {
    mkdirSync(directory, { mode: DIRECTORY_MODE });
    chmodSync(directory, DIRECTORY_MODE); // the umask may have taken bits away
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw error;
    refuseIfOthersWrite(directory);
  }
}

/**
 * Whoever can write here can have the agent forget what it granted, and which graces it owes: then a
 * client that lives and the next one both write.
 */
function refuseIfOthersWrite(directory: string): void {
  const stat = statSync(directory);
  if (!stat.isDirectory()) return; // refused with the reason when its lock is made
  const own = process.geteuid!();
  const cannot = `Cannot use state directory ${directory}`;
  const writer = otherWriter(stat, own);
  if (writer === "owner") {
    throw new StateDirError(
      `${cannot}: it belongs to uid ${stat.uid}, who could change what this agent has to know; it ` +
        `must belong to root or to uid ${own}: chown it, or choose another with --state-dir`,
      {},
    );
  }
  if (writer === "everybody") {
    throw new StateDirError(
      `${cannot}: everybody may write to it, and could change what this agent has to know; ` +
        `chmod o-w ${directory}`,
      {},
    );
  }
}

function lock(directory: string, occupant: Occupant): DirectoryLock {
  const path = join(directory, "lock");
  const fd = openSync(path, FLAGS, FILE_MODE);
  try {
    const stat = fstatSync(fd, { bigint: true });
    const facts = factsOf(fd);
    if (!facts.isFile) throw new Error(`${path} is not a regular file`);
    if (!tryFlock(fd)) throw inUse(directory, fd);
    const line = JSON.stringify({ pid: process.pid, ...occupant }) + "\n";
    // Whoever reads in between sees the end of a longer line after ours: it reads the first only.
    const written = write(fd, line);
    if (written !== null) ftruncateSync(fd, written);
    return {
      identity: `${stat.ino}:${stat.birthtimeNs}`,
      get problem() {
        return isNamedBy(path, facts) ? null : replaced(directory, path);
      },
      close: () => closeSync(fd),
    };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** A lock on a file that has no name, or another one, keeps nobody out. */
function replaced(directory: string, path: string): string {
  return `${path} was removed or replaced under this agent, so another agent could start on ` +
    `${directory}, and what is written there may be lost; restart this agent, and let nothing ` +
    `clean up the directory`;
}

/** Writes who we are; on a full disk the lock holds as well without. */
function write(fd: number, line: string): number | null {
  try {
    return writeSync(fd, line, 0);
  } catch {
    return null;
  }
}

function inUse(directory: string, fd: number): StateDirError {
  const { pid, node } = readOccupant(fd);
  const who = pid === null ? "another agent" : `another agent (pid ${pid}, node ${node})`;
  const message = `Cannot use state directory ${directory}: ${who} is using it; stop that agent, ` +
    `or give this one a directory of its own with --state-dir`;
  return new StateDirError(message, { pid });
}

function readOccupant(fd: number): { pid: number | null; node: string } {
  const buffer = Buffer.alloc(MAX_LINE_BYTES);
  const text = buffer.toString("utf8", 0, readSync(fd, buffer, 0, MAX_LINE_BYTES, 0));
  try {
    const { pid, node } = JSON.parse(text.slice(0, text.indexOf("\n")));
    return { pid: Number.isSafeInteger(pid) ? pid : null, node: String(node) };
  } catch {
    return { pid: null, node: "" };
  }
}

/** Whose it is, or what would have to hold it, where that may be the reason: not ours, and we are not root. */
function ownership(path: string): string {
  const existing = nearest(path);
  const stat = statSync(existing);
  const uid = process.geteuid!();
  if (uid === 0 || stat.uid === uid) return "";
  const mode = (stat.mode & 0o7777).toString(8).padStart(4, "0");
  const it = existing === path ? "it" : existing;
  return ` (${it} belongs to uid ${stat.uid} with mode ${mode}, this agent runs as uid ${uid})`;
}

/** The path itself or the nearest directory above it that can be looked at. */
function nearest(path: string): string {
  try {
    statSync(path);
    return path;
  } catch {
    return path === "/" ? path : nearest(dirname(path));
  }
}
