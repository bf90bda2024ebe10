/**
 * The C library: the only module that calls foreign functions.
 *
 * It opens `libc.so.6` by that name and nothing else. `dlopen` of a bare name falls back to the
 * working directory when the loader does not find it, so probing for other names could run
 * somebody else's code. What the program wants from these functions is in the modules beside this
 * one; here is only the binding, for 64-bit little-endian Linux with glibc.
 * @module
 */
import { dlopen, type Pointer, ptr, read } from "bun:ffi";

/** An address in this process. */
export type Address = Pointer;

const SYMBOLS = {
  __errno_location: { args: [], returns: "ptr" },
  clock_gettime: { args: ["i32", "ptr"], returns: "i32" },
  flock: { args: ["i32", "i32"], returns: "i32" },
  open: { args: ["ptr", "i32", "u32"], returns: "i32" },
  statx: { args: ["i32", "ptr", "i32", "u32", "ptr"], returns: "i32" },
  pread: { args: ["i32", "ptr", "u64", "i64"], returns: "i64" },
  pwrite: { args: ["i32", "ptr", "u64", "i64"], returns: "i64" },
  getsockopt: { args: ["i32", "i32", "i32", "ptr", "ptr"], returns: "i32" },
  sendmsg: { args: ["i32", "ptr", "i32"], returns: "i64" },
  recvmsg: { args: ["i32", "ptr", "i32"], returns: "i64" },
  socket: { args: ["i32", "i32", "i32"], returns: "i32" },
  sendto: { args: ["i32", "ptr", "u64", "i32", "ptr", "u32"], returns: "i64" },
  prctl: { args: ["i32", "u64", "u64", "u64", "u64"], returns: "i32" },
  fcntl: { args: ["i32", "i32", "i32"], returns: "i32" },
  getrlimit: { args: ["i32", "ptr"], returns: "i32" },
  setrlimit: { args: ["i32", "ptr"], returns: "i32" },
  posix_spawn: { args: ["ptr", "ptr", "ptr", "ptr", "ptr", "ptr"], returns: "i32" },
  posix_spawnattr_init: { args: ["ptr"], returns: "i32" },
  posix_spawnattr_setflags: { args: ["ptr", "i16"], returns: "i32" },
  posix_spawnattr_setpgroup: { args: ["ptr", "i32"], returns: "i32" },
  posix_spawnattr_setsigdefault: { args: ["ptr", "ptr"], returns: "i32" },
  posix_spawn_file_actions_init: { args: ["ptr"], returns: "i32" },
  posix_spawn_file_actions_adddup2: { args: ["ptr", "i32", "i32"], returns: "i32" },
  posix_spawn_file_actions_destroy: { args: ["ptr"], returns: "i32" },
  execve: { args: ["ptr", "ptr", "ptr"], returns: "i32" },
  dup3: { args: ["i32", "i32", "i32"], returns: "i32" },
  signal: { args: ["i32", "u64"], returns: "u64" },
  waitpid: { args: ["i32", "ptr", "i32"], returns: "i32" },
  getpgrp: { args: [], returns: "i32" },
  tcgetpgrp: { args: ["i32"], returns: "i32" },
  tcsetpgrp: { args: ["i32", "i32"], returns: "i32" },
  pthread_sigmask: { args: ["i32", "ptr", "ptr"], returns: "i32" },
} as const;

function load() {
  try {
    return dlopen("libc.so.6", SYMBOLS).symbols;
  } catch (error) {
    throw new Error(
      `Cannot load libc.so.6: ${(error as Error).message}; this program needs Linux with glibc`,
      { cause: error },
    );
  }
}

/** The functions, as C has them: they return -1 and leave the reason in {@linkcode errno}. */
export const libc = load();

// The location never changes within a thread, and every worker thread has its own module instance.
const errnoAddress = libc.__errno_location()!;

/** The number the last failed call left. Read it before anything else is called. */
export function errno(): number {
  return read.i32(errnoAddress);
}

/**
 * Memory that C may keep an address of: `bytes` zeroed bytes that stay where they are for as long
 * as the view is reachable.
 */
export function memory(bytes: number): DataView<ArrayBuffer> {
  // An explicit ArrayBuffer: a small typed array of its own can move when `.buffer` is first used.
  return new DataView(new ArrayBuffer(bytes));
}

/** The address of a view's first byte, good for as long as the view is reachable and not resized. */
export function addressOf(view: ArrayBufferView): Address {
  return ptr(view as DataView);
}

/** Writes an address or a size into a C structure. */
export function putWord(view: DataView, offset: number, value: number): void {
  view.setBigUint64(offset, BigInt(value), true);
}
