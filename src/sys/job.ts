/**
 * A child process in a process group of its own, as a shell with job control starts one: it stays
 * in the session and keeps the terminal, and its stops are seen, not only its end.
 *
 * The runtime's own spawn cannot do that: it either leaves the child in our group or gives it a
 * session of its own, without the terminal.
 * @module
 */
import { readFileSync } from "node:fs";
import { constants as os } from "node:os";
import { addressOf, errno, libc, memory, putWord } from "./libc.ts";
import { codeOf, ERRNO, SysError } from "./errno.ts";

const POSIX_SPAWN_SETPGROUP = 0x02;
const POSIX_SPAWN_SETSIGDEF = 0x04;
const WNOHANG = 1;
const WUNTRACED = 2;

// glibc's structures and their sizes on 64-bit machines: 336, 80 and 128 bytes. More than enough.
const SPAWN_ATTRIBUTES_BYTES = 512;
const FILE_ACTIONS_BYTES = 256;
const SIGNAL_SET_BYTES = 128;

/**
 * The runtime ignores these for itself. A program does not expect it: it would go on writing into a
 * pipe that nobody reads.
 */
const IGNORED_BY_RUNTIME = [os.signals.SIGPIPE, 25 /* SIGXFSZ */];

/** What to start, and how. Texts are bytes, because arguments and variables need not be UTF-8. */
export interface JobOptions {
  /** The program's file, of `findProgram`. */
  readonly path: Uint8Array;
  /** The program's name and its arguments. */
  readonly argv: readonly Uint8Array[];
  /** The whole environment, each `NAME=value`. */
  readonly env: readonly Uint8Array[];
  /** A descriptor of ours that the child gets as number `as`; others but 0, 1 and 2 are closed. */
  readonly pass?: { readonly fd: number; readonly as: number } | null;
}

/** What became of a child. */
export type JobChange =
  | { readonly kind: "exited"; readonly status: number }
  | { readonly kind: "signalled"; readonly signal: number }
  | { readonly kind: "stopped"; readonly signal: number };

/**
 * Starts a child in a process group of its own, whose number is the child's. Runs a script without
 * `#!` by /bin/sh, as shells do.
 *
 * @throws {SysError} where it cannot be run.
 */
export function startJob(options: JobOptions): number {
  return startJobIf(options, () => true)!;
}

/**
 * The same if `mayStart` says so, which is asked when all is prepared, right before the kernel is; else null.
 *
 * @throws {SysError} where it cannot be run.
 */
export function startJobIf(options: JobOptions, mayStart: () => boolean): number | null {
  const { path } = options;
  try {
    return spawnFile(path, options, mayStart);
  } catch (error) {
    if (codeOf(error) !== "ENOEXEC") throw error;
    const shell = Buffer.from("/bin/sh");
    const argv = [shell, path, ...options.argv.slice(1)];
    return spawnFile(shell, { ...options, argv }, mayStart);
  }
}

/**
 * Replaces this process by a program: what it was is over, and its number, group, session, working
 * directory and inherited descriptors are the program's. Returns only by throwing.
 *
 * @throws {SysError} where it cannot be run. Signals that the runtime ignores are not ignored any more.
 */
export function becomeProgram(options: JobOptions): never {
  const { path, argv, pass } = options;
  const SIG_DFL = 0;
  for (const signal of IGNORED_BY_RUNTIME) libc.signal(signal, SIG_DFL);
  // The copy is inherited, the original is not.
  if (pass && copyDescriptor(pass.fd, pass.as) < 0) throw new SysError("dup", errno());
  const failed = execFile(path, options);
  if (failed !== ERRNO.ENOEXEC) throw new SysError("execve", failed);
  const shell = Buffer.from("/bin/sh");
  throw new SysError(
    "execve",
    execFile(shell, { ...options, argv: [shell, path, ...argv.slice(1)] }),
  );
}

function copyDescriptor(fd: number, as: number): number {
  const F_SETFD = 2;
  return fd === as ? libc.fcntl(fd, F_SETFD, 0) : libc.dup3(fd, as, 0);
}

/** The error number with which it failed. */
function execFile(path: Uint8Array, options: JobOptions): number {
  const program = cString(path);
  const argv = vector(options.argv);
  const env = vector(options.env);
  libc.execve(addressOf(program), addressOf(argv.pointers), addressOf(env.pointers));
  const failed = errno();
  keepUntilHere(program, argv.strings, env.strings);
  return failed;
}

/** What became of a child since the last call; null for nothing. Its end is reported once. */
export function pollJob(pid: number): JobChange | null {
  const status = memory(4);
  if (libc.waitpid(pid, addressOf(status), WNOHANG | WUNTRACED) !== pid) return null;
  const word = status.getInt32(0, true);
  const low = word & 0x7f;
  if ((word & 0xff) === 0x7f) return { kind: "stopped", signal: (word >> 8) & 0xff };
  if (low === 0) return { kind: "exited", status: (word >> 8) & 0xff };
  return { kind: "signalled", signal: low };
}

/**
 * Reaps children of ours that have ended and that we did not start: orphans which became ours. Those
 * in `ours` are left to whoever started them.
 */
export function reapOrphans(ours: ReadonlySet<number>): void {
  let children: string;
  try {
    children = readFileSync(`/proc/self/task/${process.pid}/children`, "latin1");
  } catch {
    return; // a kernel without it: they are reaped when we end
  }
  for (const name of children.split(" ")) {
    const pid = Number(name);
    if (pid > 0 && !ours.has(pid)) libc.waitpid(pid, null, WNOHANG);
  }
}

/** Signals a process group; returns whether it has a member left. Signal 0 only asks. */
export function signalGroup(group: number, signal: number): boolean {
  try {
    process.kill(-group, signal);
    return true;
  } catch (error) {
    // EPERM: there are members, but none that we may signal (they changed their user).
    return codeOf(error) === "EPERM";
  }
}

/** Signals a process; one that ended meanwhile, or is not ours to signal, is left alone. */
export function signalProcess(pid: number, signal: number): void {
  try {
    process.kill(pid, signal);
  } catch {
    // As said.
  }
}

/** Whether a process is there and we have the right to signal it. */
export function maySignal(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Our own process group. */
export function ownGroup(): number {
  return libc.getpgrp();
}

/** The foreground process group of a terminal; null where `fd` is not our terminal. */
export function foregroundGroup(fd: number): number | null {
  const group = libc.tcgetpgrp(fd);
  return group > 0 ? group : null;
}

/**
 * Makes a group the foreground group of a terminal, from the background, too: the signal that would
 * stop us for it is held off. Returns whether it worked; it does not where the terminal is gone.
 */
export function setForegroundGroup(fd: number, group: number): boolean {
  const held = memory(SIGNAL_SET_BYTES);
  const before = memory(SIGNAL_SET_BYTES);
  addSignal(held, os.signals.SIGTTOU);
  const SIG_BLOCK = 0;
  const SIG_SETMASK = 2;
  libc.pthread_sigmask(SIG_BLOCK, addressOf(held), addressOf(before));
  try {
    return libc.tcsetpgrp(fd, group) === 0;
  } finally {
    libc.pthread_sigmask(SIG_SETMASK, addressOf(before), null);
  }
}

function spawnFile(
  path: Uint8Array,
  options: JobOptions,
  mayStart: () => boolean,
): number | null {
  const program = cString(path);
  const argv = vector(options.argv);
  const env = vector(options.env);
  const attributes = memory(SPAWN_ATTRIBUTES_BYTES);
  const actions = memory(FILE_ACTIONS_BYTES);
  const defaults = memory(SIGNAL_SET_BYTES);
  const pid = memory(4);
  for (const signal of IGNORED_BY_RUNTIME) addSignal(defaults, signal);
  libc.posix_spawnattr_init(addressOf(attributes));
  libc.posix_spawnattr_setflags(
    addressOf(attributes),
    POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF,
  );
  libc.posix_spawnattr_setpgroup(addressOf(attributes), 0);
  libc.posix_spawnattr_setsigdefault(addressOf(attributes), addressOf(defaults));
  libc.posix_spawn_file_actions_init(addressOf(actions));
  try {
    const { pass } = options;
    if (pass) libc.posix_spawn_file_actions_adddup2(addressOf(actions), pass.fd, pass.as);
    const views = [pid, program, actions, attributes, argv.pointers, env.pointers];
    const [a, b, c, d, e, f] = views.map(addressOf);
    if (!mayStart()) return null;
    const failed = libc.posix_spawn(a, b, c, d, e, f);
    if (failed !== 0) throw new SysError("posix_spawn", failed);
    return pid.getInt32(0, true);
  } finally {
    libc.posix_spawn_file_actions_destroy(addressOf(actions));
    keepUntilHere(program, argv.strings, env.strings);
  }
}

/** C has only numbers of these, which keep nothing alive. */
function keepUntilHere(..._views: DataView[]): void {}

function addSignal(set: DataView, signal: number): void {
  const byte = (signal - 1) >> 3;
  set.setUint8(byte, set.getUint8(byte) | (1 << ((signal - 1) & 7)));
}

function cString(bytes: Uint8Array): DataView {
  const view = memory(bytes.byteLength + 1);
  new Uint8Array(view.buffer).set(bytes);
  return view;
}

/** A null-terminated array of C strings. `strings` keeps alive what `pointers` point to. */
function vector(texts: readonly Uint8Array[]): { pointers: DataView; strings: DataView } {
  const bytes = texts.reduce((sum, text) => sum + text.byteLength + 1, 0);
  const strings = memory(Math.max(1, bytes));
  const pointers = memory((texts.length + 1) * 8);
  const target = new Uint8Array(strings.buffer);
  const base = addressOf(strings);
  let offset = 0;
  texts.forEach((text, i) => {
    target.set(text, offset);
    putWord(pointers, i * 8, base + offset);
    offset += text.byteLength + 1;
  });
  return { pointers, strings };
}
