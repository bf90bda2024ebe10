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
import { connect, type Server } from "node:net";
import { dirname } from "node:path";
import { descriptorOf } from "./handle.ts";
import type { Peer } from "./peers.ts";

/** `sun_path` of Linux holds 108 bytes, the last one a NUL. */
export const MAX_PATH_BYTES = 107;

/** Owner and group read and write. */
const MODE = 0o660;

/** How long the kernel lets connect before it says EAGAIN; capped by net.core.somaxconn. */
const BACKLOG = 4_096;

/** EX_USAGE: the path given cannot be one. EX_CANTCREAT: the socket cannot be made. */
const EXIT_USAGE = 64;
const EXIT_CANNOT_CREATE = 73;

/** Why there is no socket. */
export class SocketError extends Error {
  override readonly name = "SocketError";
  /** The exit status of a program that ends because of it. */
  readonly exit: number;
  /** The agent that has the socket, where it is that. */
  readonly pid: number | null;

  constructor(message: string, options: { exit?: number; pid?: number | null } = {}) {
    super(message);
    this.exit = options.exit ?? EXIT_CANNOT_CREATE;
    this.pid = options.pid ?? null;
  }
}

/** A path that a server listens on. */
export interface BoundPath {
  /** Whether the path still names the socket that was bound. */
  isOurs(): boolean;
  /** Removes the file if it is. */
  remove(): void;
}

/** Where to listen. */
export interface PathOptions {
  readonly path: string;
  readonly socketBound: SocketBound;
  readonly peerCredentials: (fd: number) => Peer;
}

/**
 * Whether a process has the socket file at `path` bound; true, too, if that cannot be told. Connecting
 * cannot answer that: the runtime says of a full queue, as of an agent that is stopped or swamped,
 * that the connection was refused. A datagram can: it fails with EPROTOTYPE if there is a stream
 * socket, ECONNREFUSED if there is only the file.
 */
export type SocketBound = (path: string) => boolean;

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

function checkLength(path: string): void {
  const bytes = new TextEncoder().encode(path).length;
  if (bytes <= MAX_PATH_BYTES) return;
  throw new SocketError(
    `Cannot listen on ${path}: the path has ${bytes} bytes, a socket's at most ${MAX_PATH_BYTES}; ` +
      "give a shorter one with --socket",
    { exit: EXIT_USAGE },
  );
}

/** Whoever can write to the directory can put a socket of their own in place of the agent's. */
function checkDirectory(directory: string): void {
  const stats = statOrNull(directory, statSync);
  if (stats === null) {
    throw new SocketError(
      `Cannot listen in ${directory}: there is no such directory; make it, or give another path ` +
        "with --socket",
    );
  }
  if (!stats.isDirectory()) throw new SocketError(`Cannot listen in ${directory}: not a directory`);
  const own = process.getuid!();
  if (stats.uid !== own && stats.uid !== 0) {
    throw new SocketError(
      `Cannot listen in ${directory}: it belongs to user ${stats.uid}, who could replace the ` +
        `socket; it must belong to root or to user ${own}`,
    );
  }
  const openToAll = (stats.mode & 0o002) !== 0 && (stats.mode & 0o1000) === 0;
  if (openToAll) {
    throw new SocketError(
      `Cannot listen in ${directory}: everybody may write to it and could replace the socket; ` +
        `chmod o-w ${directory}`,
    );
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

/** Throws if somebody listens on the path, or it is something else than a socket. */
async function refuseIfTaken({ path, socketBound, peerCredentials }: PathOptions): Promise<void> {
  const stats = statOrNull(path, lstatSync);
  if (stats === null) return;
  if (!stats.isSocket()) {
    throw new SocketError(`Cannot listen on ${path}: the file exists and is not a socket`);
  }
  if (!socketBound(path)) return;
  const pid = await listenerPid(path, peerCredentials);
  const who = pid === null ? "another process" : `process ${pid}`;
  throw new SocketError(
    `Cannot listen on ${path}: ${who} listens there already, perhaps another agent; stop it, or ` +
      "give this one a path of its own with --socket",
    { pid },
  );
}

/** Who listens on `path`; null if that does not come out. */
function listenerPid(path: string, peerCredentials: (fd: number) => Peer): Promise<number | null> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      try {
        resolve(peerCredentials(descriptorOf(socket)).pid);
      } catch {
        resolve(null);
      }
      socket.destroy();
    });
    socket.once("error", () => resolve(null));
  });
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

function statOrNull(path: string, stat: (path: string) => Stats): Stats | null {
  try {
    return stat(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw new SocketError(`Cannot look at ${path}: ${reason(error)}`);
  }
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

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
