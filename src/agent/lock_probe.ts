/**
 * A look at whether a store's lock is free.
 * @module
 */
import type { HeldLock, LockFailure, LockFiles } from "../ports/lock_file.ts";

/** What may come of trying to lock a file. */
export type LockFound = (HeldLock | LockFailure)["kind"];

/**
 * What comes of trying to lock the store's lock file, once and without waiting; the lock is not kept.
 * Null where that could not be told at once.
 */
export function probeLock(locks: LockFiles, store: string): LockFound | null {
  let found: LockFound | null = null;
  const cancel = locks.lock(store, -Infinity, (result) => {
    if (result.kind === "locked") result.close();
    found = result.kind;
  });
  cancel();
  return found;
}
