/**
 * The second line: an exclusive flock on a store's lock file, which also carries the epoch fence.
 * @module
 */

/** The one JSON line of a lock file: who was granted last, at which epoch. */
export interface Fence {
  readonly store: string;
  readonly node: string;
  readonly incarnation: string;
  readonly epoch: number;
  /** The process that was granted. */
  readonly pid: number;
  /** RFC 3339. */
  readonly at: string;
}

/** A process that has the locked description open. */
export interface LockOwner {
  readonly pid: number;
  /** Its arguments, for people. */
  readonly command: string;
}

/** Why a lock could not be taken or a fence not be written. */
export type LockFailure =
  /**
   * Somebody has it locked; `fence` is what the file says of them, `owners` are the processes that
   * were seen to have it: not the granted one, where a child of it kept the lock. Empty or absent
   * where they cannot be seen.
   */
  | {
    readonly kind: "busy";
    readonly fence: Fence | null;
    readonly owners?: readonly LockOwner[];
    /** The process that the file names is not there: something that it started has the lock. */
    readonly isLeft?: boolean;
  }
  /** The directory of the lock file does not exist. */
  | { readonly kind: "unknown_store"; readonly path: string }
  /** Anything else: a symlink, not a regular file, no permission, disk full… */
  | { readonly kind: "error"; readonly message: string };

/** Takes locks. Nothing here blocks: waiting for a lock polls it between other work. */
export interface LockFiles {
  /** The lock file's path of a store. */
  path(store: string): string;
  /**
   * Locks the store's lock file, trying until CLOCK_BOOTTIME reads `untilMs` (at least once), and
   * calls `done` exactly once, perhaps before it returns. The result cancels a wait: `done` is then
   * never called and nothing stays locked.
   */
  lock(
    store: string,
    untilMs: number,
    done: (result: HeldLock | LockFailure) => void,
  ): () => void;
}

/** A locked file: one open file description, held until closed here and in every process it was passed to. */
export interface HeldLock {
  readonly kind: "locked";
  /** The open descriptor, for passing on. */
  readonly fd: number;
  readonly path: string;
  /** What the file said when it was locked; null for an empty or unreadable one. */
  readonly fence: Fence | null;
  /** Whether another process was given the descriptor: closing ours may then free nothing. */
  passed: boolean;
  /** How often in a row it went from one grant to the next, without being free in between. */
  readonly handOvers: number;
  /** Whether the path still names the locked file. */
  current(): boolean;
  /**
   * The lock for the next in turn, without giving it up in between: looked at again and read again, as
   * if it were new. Null where the path no longer names the locked file: then it is to be closed.
   */
  handOver(): HeldLock | null;
  /** Writes what the file says once more: null, or why nothing can be written. For a look at it. */
  rewrite(store: string): string | null;
  /** Replaces the file's line. Returns null, or why it could not be written (disk full…). */
  writeFence(fence: Fence): string | null;
  /** Closes our descriptor; never unlocks explicitly, so a process it was passed to keeps the lock. */
  close(): void;
}
