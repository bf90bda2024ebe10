/**
 * flock(2), exclusive and without waiting.
 *
 * There is no way here to unlock, on purpose. The lock belongs to the open file description, which
 * may be shared with a process that was given the descriptor: `LOCK_UN` through any copy would free
 * it under all of them, while closing our copy leaves it with whoever still has one. Waiting is
 * left out, too: it would block the thread that renews leases.
 * @module
 */
import { errno, libc } from "./libc.ts";
import { ERRNO, SysError } from "./errno.ts";

const LOCK_EX = 2;
const LOCK_NB = 4;

/**
 * Locks an open file exclusively: true when it is now locked (or was, through this description),
 * false when somebody else has it. Closing the last copy of the descriptor frees it.
 *
 * @throws {SysError} for anything else, such as a file system without locks.
 */
export function tryFlock(fd: number): boolean {
  if (libc.flock(fd, LOCK_EX | LOCK_NB) === 0) return true;
  const number = errno();
  if (number === ERRNO.EWOULDBLOCK || number === ERRNO.EINTR) return false;
  throw new SysError("flock", number);
}
