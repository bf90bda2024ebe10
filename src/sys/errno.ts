/**
 * Failures of the operating system, told in words.
 * @module
 */
import { constants } from "node:os";
import { getSystemErrorMap } from "node:util";

/** The error numbers by name, such as `EAGAIN`. */
export const ERRNO = constants.errno;

const known = getSystemErrorMap();

/** A failed call of the operating system. */
export class SysError extends Error {
  override readonly name = "SysError";
  /** The name of the error number, such as `EAGAIN`. */
  readonly code: string;

  /** `what` was being done, such as `flock`, and the number it failed with. */
  constructor(what: string, readonly errno: number) {
    const [code, text] = known.get(-errno) ?? [`errno ${errno}`, "unknown error"];
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
  const entry = typeof number === "number" ? known.get(-Math.abs(number)) : undefined;
  if (entry) return `${entry[1]} (${entry[0]})`;
  return error instanceof Error ? error.message : String(error);
}
