/**
 * Whether the agent may take a path for its socket, and why not.
 * @module
 */
import { lstatSync, type Stats, statSync } from "node:fs";
import { connect } from "node:net";
import { otherWriter } from "../sys/directory.ts";
import { EXIT_CANNOT_CREATE, EXIT_USAGE } from "../sys/exit.ts";
import { descriptorOf } from "./handle.ts";
import type { Peer } from "./peers.ts";

/** `sun_path` of Linux holds 108 bytes, the last one a NUL. */
export const MAX_PATH_BYTES = 107;

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

/** Throws if the path is too long for a socket. */
export function checkLength(path: string): void {
  const bytes = new TextEncoder().encode(path).length;
  if (bytes <= MAX_PATH_BYTES) return;
  throw new SocketError(
    `Cannot listen on ${path}: the path has ${bytes} bytes, a socket's at most ${MAX_PATH_BYTES}; ` +
      "give a shorter one with --socket",
    { exit: EXIT_USAGE },
  );
}

/**
 * Throws if the directory is missing, or somebody else can write to it: they could put a socket of
 * their own in place of the agent's.
 */
export function checkDirectory(directory: string): void {
  const stats = statOrNull(directory, statSync);
  if (stats === null) {
    throw new SocketError(
      `Cannot listen in ${directory}: there is no such directory; make it, or give another path ` +
        "with --socket",
    );
  }
  if (!stats.isDirectory()) throw new SocketError(`Cannot listen in ${directory}: not a directory`);
  const own = process.getuid!();
  const writer = otherWriter(stats, own);
  if (writer === "owner") {
    throw new SocketError(
      `Cannot listen in ${directory}: it belongs to user ${stats.uid}, who could replace the ` +
        `socket; it must belong to root or to user ${own}`,
    );
  }
  const isSticky = (stats.mode & 0o1000) !== 0;
  if (writer === "everybody" && !isSticky) {
    throw new SocketError(
      `Cannot listen in ${directory}: everybody may write to it and could replace the socket; ` +
        `chmod o-w ${directory}`,
    );
  }
}

/** Throws if somebody listens on the path, or it is something else than a socket. */
export async function refuseIfTaken(
  { path, socketBound, peerCredentials }: PathOptions,
): Promise<void> {
  const stats = statOrNull(path, lstatSync);
  if (stats === null) return;
  if (!stats.isSocket()) {
    throw new SocketError(
      `Cannot listen on ${path}: the file exists and is not a socket; ` +
        "remove it, or give another path with --socket",
    );
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

/** What is at `path`; null if nothing is. */
export function statOrNull(path: string, stat: (path: string) => Stats): Stats | null {
  try {
    return stat(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw new SocketError(`Cannot look at ${path}: ${reason(error)}`);
  }
}

/** What went wrong, for a message. */
export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
