/**
 * Naming executables.
 * @module
 */
import { resolve } from "node:path";

/**
 * What names the same executable in any working directory: a path is the caller's, and what it names
 * is run in the directory of a store. A name without a slash is looked up in PATH.
 */
export function fromHere(executable: string): string {
  return executable.includes("/") ? resolve(executable) : executable;
}
