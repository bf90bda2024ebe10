/**
 * A look at whether a store's lock is free.
 * @module
 */
import type { LockRefusal, OnDisk } from "../lease/store_events.ts";
import type { Fence, LockFailure, LockFiles } from "../ports/lock_file.ts";

/** What may come of trying to lock a file. */
export type LockFound =
  | LockFailure
  | { readonly kind: "locked"; readonly onDisk: OnDisk | null };

/** What a store's lock file says, as the core wants it. */
export function onDiskOf(store: string, fence: Fence | null): OnDisk | null {
  if (fence === null) return null;
  const isOwn = fence.store === "" || fence.store === store;
  return { epoch: fence.epoch, copyOf: isOwn ? null : fence.store };
}

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
    const onDisk = onDiskOf(store, result.fence);
    found = message === null ? { kind: "locked", onDisk } : { kind: "error", message };
  });
  cancel();
  return found;
}

/** Why the file cannot be used, by whomever; null: it can, for all that was found. */
export function failureOf(found: LockFound | null): LockRefusal | null {
  return found?.kind === "error" || found?.kind === "unknown_store" ? found : null;
}

/** Why a guard did not get the lock at `path`, and who has it, as far as that was found out. */
export function lockRefusalOf(failure: LockFailure, path: string): LockRefusal {
  if (failure.kind !== "busy") return failure;
  const { fence, owners = [] } = failure;
  const holders = owners.map(({ pid, command }) => `process ${pid} (${command})`);
  // Who was seen to have it says more than who was granted last: that may have been its parent.
  if (holders.length > 0) return { kind: "busy", path, by: holders.join(" and ") };
  const by = fence && `process ${fence.pid} of node ${fence.node}`;
  return {
    kind: "busy",
    path,
    by: by && failure.isLeft ? `what ${by} started, which has ended` : by,
  };
}
