/**
 * Socket activation: systemd opens the socket and passes it in.
 * @module
 */
import { SocketError } from "./path_checks.ts";

/** The first descriptor systemd passes. */
const FIRST_FD = 3;

/**
 * The descriptor of the socket that systemd passed to process `pid`, or null if it passed none. Takes
 * the variables out of `env`, so that no child believes they are meant for it.
 *
 * @throws {SocketError} if more than one was passed.
 */
export function takeActivationFd(
  env: Record<string, string | undefined>,
  pid: number,
): number | null {
  const { LISTEN_PID, LISTEN_FDS } = env;
  delete env.LISTEN_PID;
  delete env.LISTEN_FDS;
  delete env.LISTEN_FDNAMES;
  if (LISTEN_PID !== String(pid) || LISTEN_FDS === undefined || LISTEN_FDS === "0") return null;
  if (LISTEN_FDS === "1") return FIRST_FD;
  throw new SocketError(
    `Cannot listen on the sockets that systemd passed: they are ${LISTEN_FDS}, not one; the ` +
      "socket unit must have one ListenStream=",
  );
}
