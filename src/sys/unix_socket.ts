/**
 * What Unix sockets can do and the runtime cannot: say who the peer is, carry open descriptors, and
 * send datagrams.
 * @module
 */
import { closeSync } from "node:fs";
import { addressOf, errno, libc, memory, putWord } from "./libc.ts";
import { ERRNO, SysError } from "./errno.ts";

const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
const SCM_RIGHTS = 1;
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const SOCK_NONBLOCK = 0o4000;
const MSG_CTRUNC = 0x8;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const MSG_CMSG_CLOEXEC = 0x40000000;

/** Never wait, and never die of a peer that is gone. */
const SEND_FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL;

/** Not among the names that `node:os` knows. */
const ETOOMANYREFS = 109;

const CMSG_HEADER = 16;
const SOCKADDR_PATH = 2;
const SOCKADDR_SIZE = 110;

/**
 * The most descriptors taken from one message. One is expected; room for more means that a peer
 * that sends several has them seen and closed rather than cut off.
 */
const MAX_DESCRIPTORS = 16;

/** Who connected, as of the time of the connect; the kernel vouches for it. */
export interface Peer {
  /** 0 for a process that this PID namespace cannot see. */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

/** What came out of a socket: no bytes mean that the peer has ended its side. */
export interface Received {
  readonly bytes: Uint8Array;
  /** Descriptors that came along, now ours to close; they are not inherited by children. */
  readonly fds: readonly number[];
}

/**
 * Who is at the other end of a connected Unix stream socket.
 *
 * @throws {SysError}
 */
export function peerOf(socket: number): Peer {
  const credentials = memory(12);
  const size = memory(4);
  size.setUint32(0, credentials.byteLength, true);
  const [value, length] = [addressOf(credentials), addressOf(size)];
  if (libc.getsockopt(socket, SOL_SOCKET, SO_PEERCRED, value, length) !== 0) {
    throw new SysError("getsockopt(SO_PEERCRED)", errno());
  }
  if (size.getUint32(0, true) !== credentials.byteLength) {
    throw new SysError("getsockopt(SO_PEERCRED)", ERRNO.EINVAL);
  }
  return {
    pid: credentials.getInt32(0, true),
    uid: credentials.getUint32(4, true),
    gid: credentials.getUint32(8, true),
  };
}

/** A `struct msghdr` for one buffer and `controlBytes` of ancillary data, with what it points to. */
function message(buffer: Uint8Array, controlBytes: number) {
  const header = memory(56);
  const vector = memory(16);
  const control = memory(controlBytes);
  putWord(vector, 0, addressOf(buffer));
  putWord(vector, 8, buffer.byteLength);
  putWord(header, 16, addressOf(vector));
  putWord(header, 24, 1);
  putWord(header, 32, addressOf(control));
  putWord(header, 40, controlBytes);
  return { header, vector, control };
}

/** Space that `count` descriptors take as ancillary data, alignment included. */
function controlSpace(count: number): number {
  return CMSG_HEADER + Math.ceil((count * 4) / 8) * 8;
}

/**
 * Sends bytes and one descriptor with them over a Unix stream socket, and returns how many bytes
 * went. The descriptor rides with the first byte: 0 means that the socket's buffer is full and
 * nothing went, the descriptor included (wait until it drains, then send again); fewer than all
 * means that it went and the rest of the bytes are to be written in the ordinary way. Nothing
 * that was written before may still wait in the runtime's own buffer, or it would be overtaken.
 *
 * @throws {SysError} such as `EPIPE` when the peer is gone, `EBADF` when `fd` is not open.
 */
export function sendWithDescriptor(socket: number, bytes: Uint8Array, fd: number): number {
  if (bytes.byteLength === 0) throw new RangeError("A descriptor needs a byte to travel with");
  const { header, vector, control } = message(bytes, controlSpace(1));
  putWord(control, 0, CMSG_HEADER + 4);
  control.setInt32(8, SOL_SOCKET, true);
  control.setInt32(12, SCM_RIGHTS, true);
  control.setInt32(16, fd, true);
  for (;;) {
    const sent = Number(libc.sendmsg(socket, addressOf(header), SEND_FLAGS));
    if (sent >= 0) return keep(sent, bytes, vector, control);
    const number = errno();
    if (number === ERRNO.EINTR) continue;
    if (number === ERRNO.EAGAIN) return 0;
    // Too many descriptors in flight between processes: like a full buffer, it passes.
    if (number === ETOOMANYREFS) return 0;
    throw new SysError("sendmsg", number);
  }
}

/**
 * Receives at most `maxBytes` and the descriptors that came with them; null when nothing is there
 * yet. The runtime must not have read from the socket before, or it took the bytes and dropped
 * the descriptors.
 *
 * @throws {SysError}
 */
export function receiveWithDescriptors(socket: number, maxBytes: number): Received | null {
  const buffer = new Uint8Array(new ArrayBuffer(maxBytes));
  const { header, vector, control } = message(buffer, controlSpace(MAX_DESCRIPTORS));
  for (;;) {
    const got = Number(libc.recvmsg(socket, addressOf(header), MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    if (got >= 0) {
      const fds = descriptorsIn(control, header.getUint32(40, true));
      if (header.getInt32(48, true) & MSG_CTRUNC) {
        fds.forEach((fd) => closeSync(fd));
        throw new SysError("recvmsg (too many descriptors in one message)", ERRNO.EMSGSIZE);
      }
      return { bytes: keep(buffer.subarray(0, got), vector), fds };
    }
    const number = errno();
    if (number === ERRNO.EINTR) continue;
    if (number === ERRNO.EAGAIN) return null;
    throw new SysError("recvmsg", number);
  }
}

/** The descriptors in `length` bytes of ancillary data. */
function descriptorsIn(control: DataView, length: number): number[] {
  const fds: number[] = [];
  for (let at = 0; at + CMSG_HEADER <= length;) {
    const size = control.getUint32(at, true);
    if (size < CMSG_HEADER) break;
    const rights = control.getInt32(at + 8, true) === SOL_SOCKET &&
      control.getInt32(at + 12, true) === SCM_RIGHTS;
    const end = Math.min(at + size, length);
    for (let p = at + CMSG_HEADER; rights && p + 4 <= end; p += 4) {
      fds.push(control.getInt32(p, true));
    }
    at += Math.ceil(size / 8) * 8;
  }
  return fds;
}

/** Returns `value`; the others stay reachable until here, so that C's addresses of them were good. */
function keep<T>(value: T, ..._alive: unknown[]): T {
  return value;
}

/** A `struct sockaddr_un` and its length; a leading `@` stands for an abstract address. */
function socketAddress(address: string): { name: DataView; length: number } {
  const abstract = address.startsWith("@");
  const path = Buffer.from(abstract ? address.slice(1) : address);
  // An abstract name is preceded by a zero byte, a path is followed by one.
  const length = SOCKADDR_PATH + path.byteLength + 1;
  if (!(abstract || address.startsWith("/")) || path.byteLength === 0 || length > SOCKADDR_SIZE) {
    throw new SysError(`address ${JSON.stringify(address)}`, ERRNO.EINVAL);
  }
  const name = memory(SOCKADDR_SIZE);
  name.setUint16(0, AF_UNIX, true);
  new Uint8Array(name.buffer).set(path, SOCKADDR_PATH + (abstract ? 1 : 0));
  return { name, length };
}

/**
 * Sends one datagram to a Unix socket, such as a service manager's: an absolute path, or an
 * abstract address written with a leading `@`. False when the receiver's queue is full, so that
 * what must arrive can be sent again.
 *
 * @throws {SysError} such as `ENOENT` when nobody listens there.
 */
export function sendDatagram(address: string, bytes: Uint8Array): boolean {
  const { name, length } = socketAddress(address);
  const socket = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) throw new SysError("socket", errno());
  try {
    for (;;) {
      const to = addressOf(name);
      const sent = libc.sendto(socket, bytes, bytes.byteLength, SEND_FLAGS, to, length);
      if (Number(sent) >= 0) return keep(true, name);
      const number = errno();
      if (number === ERRNO.EINTR) continue;
      if (number === ERRNO.EAGAIN || number === ERRNO.ENOBUFS) return false;
      throw new SysError(`sendto ${address}`, number);
    }
  } finally {
    closeSync(socket);
  }
}

/**
 * Whether a process has the socket file at the absolute `path` bound; true, too, where that cannot
 * be told. A datagram to a stream socket fails either way, but differently: ECONNREFUSED says that
 * only the file is left.
 */
export function isSocketBound(path: string): boolean {
  try {
    sendDatagram(path, new Uint8Array(0));
    return true;
  } catch (error) {
    const gone: readonly number[] = [ERRNO.ECONNREFUSED, ERRNO.ENOENT];
    return !(error instanceof SysError && gone.includes(error.errno));
  }
}
