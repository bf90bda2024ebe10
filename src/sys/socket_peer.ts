/**
 * The other end of a connected Unix socket, by the number of its inode: it is there for as long as
 * any process has that end open, whoever connected it, and in whatever way it got there.
 * @module
 */
import { fstatSync, readFileSync } from "node:fs";
import { SysError } from "./errno.ts";
import { addressOf, errno, libc, memory } from "./libc.ts";
import { receiveWithDescriptors } from "./unix_socket.ts";

const AF_UNIX = 1;
const AF_NETLINK = 16;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const NETLINK_SOCK_DIAG = 4;
const SOCK_DIAG_BY_FAMILY = 20;
const NLM_F_REQUEST = 1;
const UDIAG_SHOW_PEER = 4;
const UNIX_DIAG_PEER = 2;

/** `struct nlmsghdr`, `struct unix_diag_req`, `struct unix_diag_msg`, `struct nlattr`. */
const HEADER_BYTES = 16;
const REQUEST_BYTES = 24;
const ANSWER_BYTES = 16;
const ATTRIBUTE_BYTES = 4;

let netlink: number | null = null;
let sequence = 0;

/** The inode of the other end of a connected Unix socket; 0 where the kernel does not tell. */
export function peerInodeOf(socket: number): number {
  try {
    netlink ??= openNetlink();
    const { ino } = fstatSync(socket);
    ask(netlink, ino, ++sequence);
    return answerTo(netlink, sequence);
  } catch {
    return 0; // a kernel without it, or a service that may not use netlink
  }
}

/** The inodes of all Unix sockets in our network namespace, those of other users as well. */
export function unixSocketInodes(): ReadonlySet<number> {
  const inodes = new Set<number>();
  for (const line of readFileSync("/proc/net/unix", "latin1").split("\n")) {
    // Num: RefCount Protocol Flags Type St Inode Path
    const inode = Number(line.trimStart().split(/\s+/, 7)[6]);
    if (inode > 0) inodes.add(inode);
  }
  return inodes;
}

function openNetlink(): number {
  const fd = libc.socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) throw new SysError("socket(AF_NETLINK)", errno());
  return fd;
}

function ask(fd: number, inode: number, seq: number): void {
  const request = memory(HEADER_BYTES + REQUEST_BYTES);
  request.setUint32(0, request.byteLength, true);
  request.setUint16(4, SOCK_DIAG_BY_FAMILY, true);
  request.setUint16(6, NLM_F_REQUEST, true);
  request.setUint32(8, seq, true);
  request.setUint8(HEADER_BYTES, AF_UNIX);
  request.setUint32(HEADER_BYTES + 4, 0xffffffff, true); // in any state
  request.setUint32(HEADER_BYTES + 8, inode, true);
  request.setUint32(HEADER_BYTES + 12, UDIAG_SHOW_PEER, true);
  // No cookie: whichever socket has that number.
  request.setUint32(HEADER_BYTES + 16, 0xffffffff, true);
  request.setUint32(HEADER_BYTES + 20, 0xffffffff, true);
  if (Number(libc.sendto(fd, addressOf(request), request.byteLength, 0, null, 0)) < 0) {
    throw new SysError("sendto(NETLINK_SOCK_DIAG)", errno());
  }
}

/** The kernel has answered by the time that the question was sent. */
function answerTo(fd: number, seq: number): number {
  for (;;) {
    const received = receiveWithDescriptors(fd, 4_096);
    if (received === null) return 0;
    const { buffer, byteOffset, byteLength } = received.bytes;
    const message = new DataView(buffer, byteOffset, byteLength);
    if (byteLength < HEADER_BYTES || message.getUint32(8, true) !== seq) continue;
    const isAnswer = message.getUint16(4, true) === SOCK_DIAG_BY_FAMILY;
    return isAnswer ? peerIn(message, message.getUint32(0, true)) : 0;
  }
}

function peerIn(message: DataView, length: number): number {
  for (let at = HEADER_BYTES + ANSWER_BYTES; at + ATTRIBUTE_BYTES + 4 <= length;) {
    const size = message.getUint16(at, true);
    if (message.getUint16(at + 2, true) === UNIX_DIAG_PEER) {
      return message.getUint32(at + ATTRIBUTE_BYTES, true);
    }
    if (size < ATTRIBUTE_BYTES) break;
    at += Math.ceil(size / 4) * 4;
  }
  return 0;
}
