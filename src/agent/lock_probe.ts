/**
 * A look at whether a store's lock is free.
 * @module
 */
import type { LockFailure, LockFiles } from "../ports/lock_file.ts";

/** What may come of trying to lock a file; `epoch` is what a locked one carries. */
export type LockFound = LockFailure | { readonly kind: "locked"; readonly epoch: number | null };

/**
 * What comes of trying to lock the store's lock file, once and without waiting, and (`writes`) of
 * writing into it what it says; the lock is not kept. Null where that could not be told at once.
 */
export function probeLock(
  locks: LockFiles,
  store: string,
  { writes = false }: { writes?: boolean } = {},
): LockFound | null {
  let found: LockFound | null = null;
  const cancel = locks.lock(store, -Infinity, (result) => {
    if (result.kind !== "locked") return void (found = result);
    const message = writes ? result.rewrite(store) : null;
    result.close();
    const epoch = result.fence?.epoch ?? null;
    found = message === null ? { kind: "locked", epoch } : { kind: "error", message };
  });
  cancel();
  return found;
}
