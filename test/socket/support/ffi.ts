/**
 * The system calls the server has injected, for tests of it alone.
 * @module
 */
import { closeSync } from "node:fs";
import { dlopen, FFIType, ptr, read } from "bun:ffi";
import type { Peer } from "../../../src/socket/peers.ts";

const { i32, i64, ptr: pointer } = FFIType;
const { symbols: libc } = dlopen("libc.so.6", {
  getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
  sendmsg: { args: [i32, pointer, i32], returns: i64 },
  socket: { args: [i32, i32, i32], returns: i32 },
  sendto: { args: [i32, pointer, i64, i32, pointer, i32], returns: i64 },
  __errno_location: { args: [], returns: pointer },
});

const EAGAIN = 11;
const ECONNREFUSED = 111;
const MSG_DONTWAIT_NOSIGNAL = 0x40 | 0x4000;

/** SO_PEERCRED. */
export function peerCredentials(fd: number): Peer {
  const credentials = new Int32Array(3);
  const size = new Uint32Array([12]);
  if (libc.getsockopt(fd, 1, 17, ptr(credentials), ptr(size)) !== 0) {
    throw new Error("getsockopt failed");
  }
  const [pid, uid, gid] = credentials;
  return { pid, uid, gid };
}

/** sendmsg with SCM_RIGHTS. */
export function sendWithFd(socketFd: number, bytes: Uint8Array, fd: number): number {
  const vector = new BigUint64Array([BigInt(ptr(bytes)), BigInt(bytes.byteLength)]);
  const control = new DataView(new ArrayBuffer(24));
  control.setBigUint64(0, 20n, true);
  control.setInt32(8, 1, true);
  control.setInt32(12, 1, true);
  control.setInt32(16, fd, true);
  const header = new BigUint64Array(7);
  header[2] = BigInt(ptr(vector));
  header[3] = 1n;
  header[4] = BigInt(ptr(control));
  header[5] = 24n;
  const sent = Number(libc.sendmsg(socketFd, ptr(header), MSG_DONTWAIT_NOSIGNAL));
  if (sent >= 0) return sent;
  const errno = read.i32(libc.__errno_location()!, 0);
  if (errno === EAGAIN) return 0;
  throw new Error(`sendmsg failed: errno ${errno}`);
}

/** A datagram to a stream socket fails differently whether it is bound or only its file is left. */
export function socketBound(path: string): boolean {
  const address = new Uint8Array(110);
  address[0] = 1;
  address.set(new TextEncoder().encode(path), 2);
  const fd = libc.socket(1, 2, 0);
  libc.sendto(fd, ptr(address), 0, MSG_DONTWAIT_NOSIGNAL, ptr(address), address.length);
  const errno = read.i32(libc.__errno_location()!, 0);
  closeSync(fd);
  return errno !== ECONNREFUSED;
}
