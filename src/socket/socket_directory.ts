/**
 * The directory of the socket, where that is the agent's own to make.
 * @module
 */
import { chmodSync, lstatSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { codeOf, reasonOf } from "../sys/errno.ts";
import { checkDirectory, SocketError, statOrNull } from "./path_checks.ts";

/** As the service's RuntimeDirectory: for the agent, and its group to go through. */
const MODE = 0o750;

/**
 * Makes the directory if nothing of its name is there, a link that leads nowhere included; not its
 * parent, which is the system's.
 *
 * @throws {SocketError} if it cannot be made, or others could put another in its place.
 */
export function makeSocketDirectory(directory: string): void {
  // What is there is judged when it is listened in.
  if (statOrNull(directory, lstatSync) !== null) return;
  checkDirectory(dirname(directory));
  try {
    mkdirSync(directory, { mode: MODE });
    chmodSync(directory, MODE); // the umask may have taken bits away
  } catch (error) {
    if (codeOf(error) === "EEXIST") return;
    throw new SocketError(
      `Cannot listen in ${directory}: it cannot be made: ${reasonOf(error)}; make it, or give ` +
        "another path with --socket",
    );
  }
}
