/**
 * Settings of the calling process: whose orphans it adopts, how many descriptors it may open, and which of
 * them are inherited.
 * @module
 */
import { closeSync } from "node:fs";
import { addressOf, errno, libc, memory, putWord } from "./libc.ts";
import { SysError } from "./errno.ts";

const PR_SET_CHILD_SUBREAPER = 36;
const RLIMIT_NOFILE = 7;
const F_DUPFD_CLOEXEC = 1030;
/** Above what is opened by number on purpose, and below any sensible limit. */
const MOVED_TO = 64;
const RLIM_INFINITY = 2n ** 64n - 1n;

/** How many descriptors a process may have open. */
export interface DescriptorLimit {
  /** What the kernel enforces now. */
  readonly soft: number;
  /** How far `soft` can be raised; Infinity for no bound. */
  readonly hard: number;
}

/**
 * Makes this process the parent of orphans among its descendants, so that it can see and reap
 * them. Not inherited by children.
 *
 * @throws {SysError}
 */
export function setChildSubreaper(): void {
  if (libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) !== 0) {
    throw new SysError("prctl(PR_SET_CHILD_SUBREAPER)", errno());
  }
}

/**
 * How many descriptors this process may have open.
 *
 * @throws {SysError}
 */
export function descriptorLimit(): DescriptorLimit {
  const limit = memory(16);
  if (libc.getrlimit(RLIMIT_NOFILE, addressOf(limit)) !== 0) {
    throw new SysError("getrlimit(RLIMIT_NOFILE)", errno());
  }
  const [soft, hard] = [limit.getBigUint64(0, true), limit.getBigUint64(8, true)]
    .map((value) => value === RLIM_INFINITY ? Infinity : Number(value));
  return { soft: soft!, hard: hard! };
}

/**
 * Raises (or lowers) how many descriptors this process may have open, up to the hard limit; returns
 * the limit that now holds.
 *
 * @throws {SysError}
 */
export function setDescriptorLimit(soft: number): DescriptorLimit {
  const { hard } = descriptorLimit();
  const limit = memory(16);
  putWord(limit, 0, Math.min(soft, hard, Number.MAX_SAFE_INTEGER));
  limit.setBigUint64(8, hard === Infinity ? RLIM_INFINITY : BigInt(hard), true);
  if (libc.setrlimit(RLIMIT_NOFILE, addressOf(limit)) !== 0) {
    throw new SysError("setrlimit(RLIMIT_NOFILE)", errno());
  }
  return descriptorLimit();
}

/**
 * Moves an inherited descriptor to a number that is not in the way, and that no program inherits;
 * returns that.
 *
 * @throws {SysError} such as `EBADF`.
 */
export function moveDescriptor(fd: number): number {
  const moved = libc.fcntl(fd, F_DUPFD_CLOEXEC, MOVED_TO);
  if (moved < 0) throw new SysError(`dup of descriptor ${fd}`, errno());
  closeSync(fd);
  return moved;
}
