/**
 * What holds for requests before they are sent.
 * @module
 */
import { Buffer } from "node:buffer";
import { MAX_REQUEST_BYTES, type Method } from "../socket/protocol.ts";
import { InvalidError } from "./errors.ts";

/**
 * Calls `then` once what already lies in a socket that was just resumed has been read. An agent that
 * turns a connection away says why and closes; writing to it fails, and the runtime then closes the
 * socket with the reason unread in it.
 */
export function afterReading(then: () => void): void {
  // The first comes before the event loop looks at its sockets, the second after.
  setImmediate(() => setImmediate(then));
}

/**
 * Refuses a request that the agent would not read.
 *
 * @throws {InvalidError}
 */
export function checkLength(method: Method, line: string): void {
  // A character is three bytes at most; only a long line needs counting.
  if (line.length * 3 <= MAX_REQUEST_BYTES) return;
  if (Buffer.byteLength(line) - 1 <= MAX_REQUEST_BYTES) return;
  throw new InvalidError(
    `Cannot ask the agent "${method}": the request is longer than 1 MiB; ask in parts`,
  );
}
