/**
 * Files that are opened, looked at, read and written for every guard: past the runtime's own
 * functions, whose objects and conversions take as long as the kernel does.
 *
 * Paths, facts and bytes are in memory of this module that is used again by the next call.
 * @module
 */
import { addressOf, errno, libc, memory } from "./libc.ts";
import { ERRNO, SysError } from "./errno.ts";

const O_CLOEXEC = 0o2000000;

/** Longest path that the kernel takes, with the zero byte at its end. */
const PATH_BYTES = 4_096;

const path = Buffer.from(memory(PATH_BYTES).buffer);
const pathAddress = addressOf(path);

const AT_FDCWD = -100;
const AT_SYMLINK_NOFOLLOW = 0x100;
const AT_EMPTY_PATH = 0x1000;
const STATX_TYPE_INO_SIZE = 0x1 | 0x100 | 0x200;

/** A `struct statx`: the fields that are read of it are at the offsets below. */
const facts = memory(256);
const factsAddress = addressOf(facts);
const AT_MODE = 28;
const AT_INO = 32;
const AT_SIZE = 40;
const AT_DEV = 136;

const S_IFMT = 0o170000;
const S_IFREG = 0o100000;

/** What tells a file from all others that there are now, and its size. */
export interface FileFacts {
  readonly dev: bigint;
  readonly ino: bigint;
  /** In bytes. */
  readonly size: number;
  /** Whether it is a regular file. */
  readonly isFile: boolean;
}

/** Puts a path where C finds it. */
function putPath(text: string): void {
  const bytes = path.write(text, 0, PATH_BYTES - 1);
  // Cut short it would name another file, and so it would with a zero byte within.
  if (bytes !== Buffer.byteLength(text)) throw new SysError("path", ERRNO.ENAMETOOLONG);
  if (text.includes("\0")) throw new SysError("path", ERRNO.EINVAL);
  path[bytes] = 0;
}

/**
 * Opens a file; a child does not inherit it. `flags` are open(2)'s.
 *
 * @throws {SysError}
 */
export function openFile(text: string, flags: number): number {
  putPath(text);
  for (;;) {
    const fd = libc.open(pathAddress, flags | O_CLOEXEC, 0);
    if (fd >= 0) return fd;
    const number = errno();
    if (number !== ERRNO.EINTR) throw new SysError("open", number);
  }
}

/**
 * Looks at an open file.
 *
 * @throws {SysError}
 */
export function factsOf(fd: number): FileFacts {
  putPath("");
  look(fd, AT_EMPTY_PATH);
  return {
    dev: facts.getBigUint64(AT_DEV, true),
    ino: facts.getBigUint64(AT_INO, true),
    size: Number(facts.getBigUint64(AT_SIZE, true)),
    isFile: (facts.getUint16(AT_MODE, true) & S_IFMT) === S_IFREG,
  };
}

/**
 * Whether a path names, itself and not through a symlink at its end, the file that has these facts.
 *
 * @throws {SysError} where that cannot be seen.
 */
export function isNamedBy(text: string, file: Pick<FileFacts, "dev" | "ino">): boolean {
  putPath(text);
  try {
    look(AT_FDCWD, AT_SYMLINK_NOFOLLOW);
  } catch (error) {
    if (error instanceof SysError && GONE.includes(error.errno)) return false;
    throw error;
  }
  return facts.getBigUint64(AT_INO, true) === file.ino &&
    facts.getBigUint64(AT_DEV, true) === file.dev;
}

const GONE: readonly number[] = [ERRNO.ENOENT, ERRNO.ENOTDIR];

/** Takes the facts of what the path in our memory names, from `fd` on. */
function look(fd: number, flags: number): void {
  while (libc.statx(fd, pathAddress, flags, STATX_TYPE_INO_SIZE, factsAddress) !== 0) {
    const number = errno();
    if (number !== ERRNO.EINTR) throw new SysError("stat", number);
  }
}

/**
 * A piece of memory that files are read into and written from. It is used over and over: what a
 * `Buffer` of its own would cost each time is most of what reading a line costs.
 */
export class FileBuffer {
  readonly bytes: Buffer;
  readonly #address;

  constructor(bytes: number) {
    this.bytes = Buffer.from(memory(bytes).buffer);
    this.#address = addressOf(this.bytes);
  }

  /**
   * Reads from the beginning of a file, as much as there is and fits; returns how many bytes.
   *
   * @throws {SysError}
   */
  readFrom(fd: number): number {
    for (;;) {
      const got = Number(libc.pread(fd, this.#address, this.bytes.byteLength, 0));
      if (got >= 0) return got;
      const number = errno();
      if (number !== ERRNO.EINTR) throw new SysError("read", number);
    }
  }

  /**
   * Writes the first `count` bytes to the beginning of a file; returns how many went, fewer only where
   * the disk is full.
   *
   * @throws {SysError}
   */
  writeTo(fd: number, count: number): number {
    for (;;) {
      const written = Number(libc.pwrite(fd, this.#address, count, 0));
      if (written >= 0) return written;
      const number = errno();
      if (number !== ERRNO.EINTR) throw new SysError("write", number);
    }
  }
}
