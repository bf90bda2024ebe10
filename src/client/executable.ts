/**
 * What is to be run, and where.
 * @module
 */
import { accessSync, constants, statSync } from "node:fs";
import { resolve } from "node:path";
import { MisconfiguredError } from "./errors.ts";

/**
 * What names the same executable in any working directory: a path is the caller's, and what it names
 * is run in the directory of a store. A name without a slash is looked up in PATH.
 */
export function fromHere(executable: string): string {
  return executable.includes("/") ? resolve(executable) : executable;
}

/**
 * Refuses a directory in which nothing can be run: the system's error would be the same as for an
 * executable that is not there, and would name that.
 *
 * @throws {MisconfiguredError}
 */
export function checkDirectory(directory: string, store: string): void {
  const why = problemOf(directory);
  if (why === null) return;
  throw new MisconfiguredError(
    `Cannot run zit for ${store} in ${JSON.stringify(directory)}: ${why}; make it, or have the ` +
      "option `directory` name the store's",
  );
}

function problemOf(directory: string): string | null {
  try {
    if (!statSync(directory).isDirectory()) return "it is no directory";
    accessSync(directory, constants.X_OK);
    return null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return "there is no such directory";
    if (code === "ENOTDIR") return "a part of the path is no directory";
    if (code === "EACCES") return "no permission to enter it";
    return null; // Deno may not look; running something there may be permitted all the same
  }
}
