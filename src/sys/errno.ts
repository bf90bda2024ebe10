/**
 * Failures of the operating system, told in words.
 * @module
 */
import { constants } from "node:os";
import { getSystemErrorMap } from "node:util";

/** The error numbers by name, such as `EAGAIN`. */
export const ERRNO = constants.errno;

/** Texts that the runtime lacks, of failures that disks and sockets do have. */
const MORE: Readonly<Record<number, readonly [string, string]>> = {
  37: ["ENOLCK", "no locks available"],
  109: ["ETOOMANYREFS", "too many references"],
  116: ["ESTALE", "stale file handle"],
  117: ["EUCLEAN", "the file system is damaged"],
  122: ["EDQUOT", "disk quota exceeded"],
};

const known = getSystemErrorMap();

/** The name and the text of an error number, where they are known. */
function describe(errno: number): readonly [string, string] | undefined {
  return known.get(-errno) ?? MORE[errno];
}

/** A failed call of the operating system. */
export class SysError extends Error {
  override readonly name = "SysError";
  /** The name of the error number, such as `EAGAIN`. */
  readonly code: string;

  /** `what` was being done, such as `flock`, and the number it failed with. */
  constructor(what: string, readonly errno: number) {
    const [code, text] = describe(errno) ?? [`errno ${errno}`, "unknown error"];
    super(`${what}: ${text} (${code})`);
    this.code = code;
  }
}

/** The name of the error number that a failed call of `node:fs` or of this folder carries, else null. */
export function codeOf(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" ? code : null;
}

/**
 * Why a call failed, for the end of a sentence: `no space left on device (ENOSPC)`. Takes what
 * `node:fs` throws (whose own message repeats the path) as well as anything else.
 */
export function reasonOf(error: unknown): string {
  const number = (error as { errno?: unknown } | null)?.errno;
  const entry = typeof number === "number" ? describe(Math.abs(number)) : undefined;
  if (entry) return `${entry[1]} (${entry[0]})`;
  return error instanceof Error ? error.message : String(error);
}
