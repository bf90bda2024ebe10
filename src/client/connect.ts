/**
 * Connecting to the agent.
 * @module
 */
import { connect as connectSocket, type Socket } from "node:net";
import process from "node:process";
import { type Bounds, onEnd } from "./bounds.ts";
import { Connection } from "./connection.ts";
import { AgentUnreachable } from "./errors.ts";
import { checkSocketPath, defaultSocketPath, WAYS_TO_NAME_IT } from "./socket_path.ts";

/** How to connect. */
export interface ConnectOptions {
  /** The path of the socket; default see {@linkcode defaultSocketPath}. */
  readonly socket?: string;
  /** How long connecting may take. Default 2,000: an agent accepts in microseconds. */
  readonly timeoutMs?: number;
  /** Gives connecting up: it throws what the signal aborted with. */
  readonly signal?: AbortSignal;
}

const DEFAULT_TIMEOUT_MS = 2_000;

/** How soon to try again when more are connecting than the kernel queues. */
const RETRY_MS = 20;

/**
 * Connects to the agent.
 *
 * @throws {AgentUnreachable} if nobody listens on the socket, or not in time. What the signal aborted with.
 * @throws {AgentError} if no socket was given and the environment names none, or none that can be.
 */
export async function openConnection(options: ConnectOptions = {}): Promise<Connection> {
  const path = options.socket ?? defaultSocketPath(process.env, process.getuid?.() ?? 0);
  return new Connection(await openSocket({ ...options, socket: path }), { path });
}

/**
 * Connects as {@linkcode openConnection} does, but leaves the socket paused and unread: for callers that
 * receive descriptors and make a {@linkcode Connection} of it afterwards.
 *
 * @internal
 * @throws {InvalidError} if there can be no socket of that path.
 * @throws {AgentUnreachable} if nobody listens on the socket, or not in time.
 */
export async function openSocket(
  options: ConnectOptions & { readonly socket: string },
): Promise<Socket> {
  const { socket: path, timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
  checkSocketPath(path);
  const sinceMs = performance.now();
  while (true) {
    signal?.throwIfAborted();
    const socket = await tryConnect(path, { timeoutMs, signal, sinceMs });
    if (socket !== null) return socket;
    if (performance.now() + RETRY_MS > sinceMs + timeoutMs) throw tooSlow(path, timeoutMs);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** A connected socket, or null where another try may succeed. */
function tryConnect(path: string, bounds: Bounds): Promise<Socket | null> {
  return new Promise((resolve, reject) => {
    const socket = connectSocket(path);
    // Nothing is read before somebody wants it.
    socket.pause();
    const stop = onEnd(bounds, () => null, (reason) => {
      socket.destroy();
      if (bounds.signal?.aborted) reject(reason);
      else resolve(null);
    });
    function failed(error: NodeJS.ErrnoException) {
      stop();
      socket.destroy();
      // Reset: taken, told why it cannot stay, and closed, all before the runtime looked. What it was
      // told is lost; the next one may stay, or read why not.
      if (error.code === "EAGAIN" || error.code === "ECONNRESET") resolve(null);
      else reject(unreachable(path, error));
    }
    socket.once("error", failed);
    socket.once("connect", () => {
      stop();
      socket.off("error", failed);
      resolve(socket);
    });
  });
}

/** @internal */
export function tooSlow(path: string, timeoutMs: number): AgentUnreachable {
  return new AgentUnreachable(
    `The agent at ${path} did not take the connection within ${timeoutMs} ms; see what it is ` +
      "doing (systemctl status zit-agent)",
  );
}

function unreachable(path: string, error: NodeJS.ErrnoException): AgentUnreachable {
  return new AgentUnreachable(`Cannot reach the agent at ${path}: ${explain(error)}`, {
    cause: error,
  });
}

const START = "start the agent (systemctl start zit-agent, or agent run)";

function explain(error: NodeJS.ErrnoException): string {
  switch (error.code) {
    case "ENOENT":
      return `there is no such socket; ${START}, or name its socket by ${WAYS_TO_NAME_IT}`;
    case "ECONNREFUSED":
      // Bun also says this of a full queue, of a file that is no socket, and of a path through one.
      return `nobody answers there; ${START}, or look whether it hangs ` +
        "(systemctl status zit-agent)";
    case "EACCES":
    case "EPERM":
      return "no permission; its owner and group may connect (ls -l shows them)";
    case "ENOTDIR":
      return `a part of the path is not a directory; name the socket by ${WAYS_TO_NAME_IT}`;
    default:
      return error.message;
  }
}
