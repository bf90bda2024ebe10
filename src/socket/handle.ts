/**
 * The native side of a `node:net` socket, which the runtime does not expose otherwise.
 * @module
 */
import type { Socket } from "node:net";

function handleOf(socket: Socket): { readonly fd?: number } | null {
  return (socket as unknown as { _handle?: { fd?: number } | null })._handle ?? null;
}

/** The file descriptor of `socket`. Throws if it has none, or none any more. */
export function descriptorOf(socket: Socket): number {
  const fd = handleOf(socket)?.fd;
  if (fd === undefined || fd < 0) throw new Error("Cannot use the connection: it is closed");
  return fd;
}

/**
 * Whether the peer is gone altogether, rather than having shut down only its sending side. With
 * `allowHalfOpen` the runtime tells only that nothing more will come; it closes the descriptor when
 * the peer hangs up, but emits no event before somebody writes.
 */
export function hungUp(socket: Socket): boolean {
  const fd = handleOf(socket)?.fd;
  return fd === undefined || fd < 0;
}
