/**
 * Taking the socket's path: never away from an agent that lives, never wider open than 0660, not even
 * for a moment.
 * @module
 */
import {
  chmodSync,
  linkSync,
  lstatSync,
  renameSync,
  type Stats,
  statSync,
  unlinkSync,
} from "node:fs";
import type { Server } from "node:net";
import { dirname } from "node:path";
import {
  checkDirectory,
  checkLength,
  MAX_PATH_BYTES,
  type PathOptions,
  reason,
  refuseIfTaken,
  SocketError,
  statOrNull,
} from "./path_checks.ts";

/** Owner and group read and write. */
const MODE = 0o660;

/** How long the kernel lets connect before it says EAGAIN; capped by net.core.somaxconn. */
const BACKLOG = 4_096;

/** A path that a server listens on. */
export interface BoundPath {
  /** Whether the path still names the socket that was bound. */
  isOurs(): boolean;
  /** Removes the file if it is. */
  remove(): void;
}

/** Makes `server` listen on a socket file, replacing one that nobody listens on. */
export async function listenOnPath(server: Server, options: PathOptions): Promise<BoundPath> {
  const { path } = options;
  checkLength(path);
  checkDirectory(dirname(path));
  // Looked at before anything is made, for the common fault: an agent runs already.
  await refuseIfTaken(options);
  const temporary = temporaryPath(path);
  remove(temporary);
  await listenPrivately(server, temporary);
  try {
    // The umask does not count where the directory has a default ACL.
    chmodSync(temporary, MODE);
    const made = lstatSync(temporary);
    await claim(temporary, options);
    return boundPath(path, made);
  } catch (error) {
    remove(temporary);
    await new Promise((resolve) => server.close(resolve));
    throw error;
  }
}

/** Makes `server` listen on the socket that is open as `fd`. */
export async function listenOnDescriptor(server: Server, fd: number): Promise<void> {
  if (!isSocket(`/proc/self/fd/${fd}`)) {
    throw new SocketError(`Cannot listen on descriptor ${fd}: it is not a socket`);
  }
  try {
    await listening(server, () => server.listen({ fd }));
  } catch (error) {
    throw new SocketError(`Cannot listen on descriptor ${fd}: ${reason(error)}`);
  }
}

/**
 * A path to bind before the real one is claimed: beside it, and unused, as the process is. Its length
 * is limited, too, so it is a short one where the long one does not fit.
 */
function temporaryPath(path: string): string {
  const plain = `${path}.${process.pid}`;
  if (new TextEncoder().encode(plain).length <= MAX_PATH_BYTES) return plain;
  return `${dirname(path)}/.${process.pid.toString(36)}`;
}

async function listenPrivately(server: Server, path: string): Promise<void> {
  // The file is made while listen() is called, with the mode that the umask leaves.
  const umask = process.umask(0o777 & ~MODE);
  const listened = listening(server, () => server.listen({ path, backlog: BACKLOG }));
  process.umask(umask);
  try {
    await listened;
  } catch (error) {
    throw new SocketError(`Cannot listen on ${path}: ${reason(error)}`);
  }
}

function listening(server: Server, listen: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.once("listening", () => {
      server.off("error", reject);
      resolve();
    });
    listen();
  });
}

/** Gives the bound socket its real path, and takes its temporary one. */
async function claim(temporary: string, options: PathOptions): Promise<void> {
  const { path } = options;
  try {
    // Fails if the path exists, so that of two agents that start at once only one gets it.
    linkSync(temporary, path);
    unlinkSync(temporary);
    return;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") {
      throw new SocketError(`Cannot listen on ${path}: ${reason(error)}`);
    }
  }
  await refuseIfTaken(options);
  renameSync(temporary, path);
}

function boundPath(path: string, made: Stats): BoundPath {
  function isOurs(): boolean {
    const now = statOrNull(path, lstatSync);
    return now !== null && now.ino === made.ino && now.dev === made.dev;
  }
  return {
    isOurs,
    remove() {
      if (isOurs()) remove(path);
    },
  };
}

function isSocket(path: string): boolean {
  return statOrNull(path, statSync)?.isSocket() ?? false;
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") {
      throw new SocketError(`Cannot remove ${path}: ${reason(error)}`);
    }
  }
}
