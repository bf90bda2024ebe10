/**
 * Where the agent's socket is.
 * @module
 */
import { isAbsolute, resolve } from "node:path";
import { InvalidError } from "./errors.ts";

/** Where a system's agent listens. */
export const SYSTEM_SOCKET_PATH = "/run/zit-agent/agent.sock";

/** The option as programs know it; commands say what theirs is called. */
export const SOCKET_OPTION = "the option `socket`";
/** For messages. */
export const WAYS_TO_NAME_IT = `${SOCKET_OPTION} or ZIT_AGENT_SOCKET`;

/** `sun_path` of Linux holds 108 bytes, the last one a NUL. */
const MAX_PATH_BYTES = 107;

/**
 * Refuses a path at which there can be no socket.
 *
 * @throws {InvalidError}
 */
export function checkSocketPath(path: string): void {
  const why = problemOf(path);
  if (why === null) return;
  throw new InvalidError(
    `Cannot reach an agent at ${JSON.stringify(path)}: ${why}; name its socket by ` +
      WAYS_TO_NAME_IT,
  );
}

function problemOf(path: string): string | null {
  if (path === "") return "the path of the socket is empty";
  if (path.includes("\0")) return "a path cannot contain a NUL";
  const bytes = new TextEncoder().encode(path).length;
  if (bytes <= MAX_PATH_BYTES) return null;
  return `the path has ${bytes} bytes, a socket's at most ${MAX_PATH_BYTES}`;
}

/**
 * The path as it holds in any directory: programs under a grant run elsewhere, and this process may go
 * elsewhere before it connects again.
 *
 * @internal
 */
export function absoluteSocketPath(path: string): string {
  // The empty one is nobody's, and is refused as such.
  return path === "" || isAbsolute(path) ? path : resolve(path);
}

/**
 * The socket that is meant when none is named: `ZIT_AGENT_SOCKET`, else the system's for root and the
 * user's, in `XDG_RUNTIME_DIR`, for anybody else.
 *
 * @throws {InvalidError} if the environment does not tell.
 */
export function defaultSocketPath(
  env: Readonly<Record<string, string | undefined>>,
  uid: number,
): string {
  if (env.ZIT_AGENT_SOCKET) return env.ZIT_AGENT_SOCKET;
  if (uid === 0) return SYSTEM_SOCKET_PATH;
  if (env.XDG_RUNTIME_DIR) return `${env.XDG_RUNTIME_DIR}/zit-agent/agent.sock`;
  throw new InvalidError(
    "Cannot tell where the agent's socket is: XDG_RUNTIME_DIR is not set; name the socket by " +
      `${WAYS_TO_NAME_IT} (the system's agent listens on ${SYSTEM_SOCKET_PATH})`,
  );
}
