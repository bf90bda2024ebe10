/**
 * Where a command's program is.
 * @module
 */
import { accessSync, constants, statSync } from "node:fs";
import { codeOf, ERRNO, SysError } from "./errno.ts";

/**
 * The path of a program: as given if it has a slash, else the first on PATH that may be run.
 *
 * @throws {SysError} with `ENOENT` where there is none, with `EACCES` where there are some but none
 * may be run.
 */
export function findProgram(name: Uint8Array, env: readonly Uint8Array[]): Uint8Array {
  const text = Buffer.from(name).toString("latin1");
  if (text === "") throw new SysError("exec", ERRNO.ENOENT);
  if (text.includes("/")) {
    const failure = executability(Buffer.from(name));
    if (failure !== 0) throw new SysError("exec", failure);
    return name;
  }
  const entry = env.map((each) => Buffer.from(each).toString("latin1"))
    .find((each) => each.startsWith("PATH="));
  let failure: number = ERRNO.ENOENT;
  for (const directory of (entry?.slice(5) ?? "/usr/local/bin:/usr/bin:/bin").split(":")) {
    const path = Buffer.from(`${directory || "."}/${text}`, "latin1");
    const found = executability(path);
    if (found === 0) return path;
    if (found === ERRNO.EACCES) failure = found;
  }
  throw new SysError("exec", failure);
}

/** 0 for a file that may be run, else an error number. */
function executability(path: Buffer): number {
  try {
    if (!statSync(path).isFile()) return ERRNO.EACCES; // a directory, as shells say
    accessSync(path, constants.X_OK);
    return 0;
  } catch (error) {
    return codeOf(error) === "EACCES" ? ERRNO.EACCES : ERRNO.ENOENT;
  }
}
