/**
 * Where lock files are.
 * @module
 */
import { resolve } from "node:path";
import { isStoreCode } from "../lease/store_code.ts";

const PLACEHOLDER = "{store}";

/** Gives the path of a store's lock file. */
export type LockPath = (store: string) => string;

/**
 * Reads a `--lock-path`: a path in which `{store}` stands for the store code, which may itself hold
 * `/` and so name nested directories. Relative paths are taken from the working directory of now.
 *
 * @throws {RangeError} with a message for the person who set it.
 */
export function parseLockPath(template: string): LockPath {
  const cannot = `Cannot use the lock path ${JSON.stringify(template)}: it`;
  if (!template.includes(PLACEHOLDER)) {
    throw new RangeError(
      `${cannot} does not contain ${PLACEHOLDER}, so all stores would share one lock; ` +
        `write it like /var/lib/zit/${PLACEHOLDER}/lease.lock`,
    );
  }
  if (template.endsWith("/")) {
    throw new RangeError(`${cannot} names a directory; add a file name, such as lease.lock`);
  }
  if (template.includes("\0")) throw new RangeError(`${cannot} contains a zero byte; remove it`);
  const absolute = resolve(template);
  if (!absolute.includes(PLACEHOLDER)) {
    throw new RangeError(`${cannot} loses ${PLACEHOLDER} to a ".." after it; write it without`);
  }
  const around = absolute.split(PLACEHOLDER);
  return function lockPath(store) {
    // A code is a safe relative path; anything else is a fault of the caller, and could lead anywhere.
    if (!isStoreCode(store)) throw new RangeError(`Not a store code: ${JSON.stringify(store)}`);
    return around.join(store);
  };
}
