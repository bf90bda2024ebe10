/**
 * Waiting for a descriptor that the runtime must not read from.
 *
 * Its event loop reads what it watches, and loses descriptors that come along. The kernel can
 * tell by a signal instead, which the runtime's loop does deliver.
 * @module
 */
import { errno, libc } from "./libc.ts";
import { SysError } from "./errno.ts";

const F_GETFL = 3;
const F_SETFL = 4;
const F_SETOWN = 8;
const O_ASYNC = 0o20000;

/**
 * Calls `wake` when there may be something to read from a socket, or its peer closed it: often for
 * nothing, and at least once in `everyMs` where signals are held off. The result ends that. One
 * socket at a time.
 *
 * @throws {SysError}
 */
export function whenReadable(socket: number, everyMs: number, wake: () => void): () => void {
  const flags = libc.fcntl(socket, F_GETFL, 0);
  if (flags < 0) throw new SysError("fcntl(F_GETFL)", errno());
  process.on("SIGIO", wake);
  const timer = setInterval(wake, everyMs);
  const done = () => {
    libc.fcntl(socket, F_SETFL, flags & ~O_ASYNC);
    clearInterval(timer);
    process.off("SIGIO", wake);
  };
  if (
    libc.fcntl(socket, F_SETOWN, process.pid) < 0 ||
    libc.fcntl(socket, F_SETFL, flags | O_ASYNC) < 0
  ) {
    const failed = errno();
    done();
    throw new SysError("fcntl(O_ASYNC)", failed);
  }
  return done;
}
