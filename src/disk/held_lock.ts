/**
 * A locked file.
 * @module
 */
import { closeSync, ftruncateSync } from "node:fs";
import type { Fence, HeldLock, LockFailure } from "../ports/lock_file.ts";
import { reasonOf } from "../sys/errno.ts";
import { FileBuffer, isNamedBy } from "../sys/file.ts";
import { tryFlock } from "../sys/flock.ts";
import {
  formatBlank,
  formatFence,
  isForeign,
  MAX_LINE_BYTES,
  parseFence,
  parseWholeFence,
} from "./fence.ts";
import type { OpenFile } from "./open_lock_file.ts";

/**
 * Holds the lock on `file` until closed. It is never closed by the garbage collector: forgetting a
 * lock may keep a store busy, but must not free it under a writer.
 */
export class FlockHeldLock implements HeldLock {
  readonly kind = "locked";
  readonly fd: number;
  readonly path: string;
  readonly fence: Fence | null;
  passed = false;
  handOvers = 0;
  readonly #file: OpenFile;
  #size: number;
  #closed = false;

  /** Takes over a file that is locked already. */
  constructor(path: string, file: OpenFile, fence: Fence | null) {
    this.path = path;
    this.fd = file.fd;
    this.fence = fence;
    this.#file = file;
    this.#size = file.size;
  }

  current(): boolean {
    if (this.#closed) return false;
    try {
      return isNamedBy(this.path, this.#file);
    } catch {
      return false; // a directory above it cannot be searched any more: nobody can say it is the one
    }
  }

  handOver(): HeldLock | null {
    if (this.passed || !this.current()) return null;
    const said = readLine(this.fd);
    if (said.foreign) return null;
    const next = new FlockHeldLock(this.path, this.#file, said.fence);
    next.#size = this.#size;
    next.handOvers = this.handOvers + 1;
    this.#closed = true;
    return next;
  }

  writeFence(fence: Fence): string | null {
    const length = formatFence(fence, draft.bytes);
    if (length > 0) return this.#write(fence.store, length, true);
    return `${this.#cannotWrite(fence.store)}: it is longer than ${MAX_LINE_BYTES} bytes; ` +
      "shorten the node name";
  }

  rewrite(store: string): string | null {
    try {
      const said = view(this.fd).copy(draft.bytes);
      return this.#write(store, said > 0 ? said : formatBlank(draft.bytes), false);
    } catch (error) {
      return `Cannot read ${this.path} of store ${store}: ${reasonOf(error)}; mend the disk`;
    }
  }

  /** Writes the draft's first `length` bytes; with `isAll` the file ends after them. */
  #write(store: string, length: number, isAll: boolean): string | null {
    const cannot = this.#cannotWrite(store);
    // The number may name another file by now.
    if (this.#closed) return `${cannot}: the lock was given back`;
    try {
      if (draft.writeTo(this.fd, length) !== length) {
        return `${cannot}: the disk is full; free some space`;
      }
      if (isAll && this.#size > length) ftruncateSync(this.fd, length);
      this.#size = isAll ? length : Math.max(this.#size, length);
      return null;
    } catch (error) {
      return `${cannot}: ${reasonOf(error)}; free some space or mend the disk`;
    }
  }

  #cannotWrite(store: string): string {
    return `Cannot write the fence of store ${store} into ${this.path}`;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeSync(this.fd);
  }
}

/** Locked a file that cannot be the lock: its path names another by now, or it holds other data. */
export type WrongFile = { readonly kind: "moved" } | { readonly kind: "foreign" };

/**
 * Locks an open file, and makes sure that it is the one that everybody else finds at `path`. Only a
 * returned lock takes the descriptor over.
 *
 * @throws {SysError} when the file cannot be locked or read.
 */
export function lockOpenFile(path: string, file: OpenFile): HeldLock | LockFailure | WrongFile {
  if (!tryFlock(file.fd)) return { kind: "busy", fence: peekFence(file.fd) };
  if (!isNamedBy(path, file)) return { kind: "moved" };
  const { fence, foreign } = readLine(file.fd);
  return foreign ? { kind: "foreign" } : new FlockHeldLock(path, file, fence);
}

/** For reads of which nothing is kept, and for what is written at once. */
const found = new FileBuffer(MAX_LINE_BYTES);
const draft = new FileBuffer(MAX_LINE_BYTES);

/** What the file says, read by whoever has it locked; `foreign` where it is no lock file of ours. */
function readLine(fd: number): { fence: Fence | null; foreign: boolean } {
  const bytes = view(fd);
  const fence = parseFence(bytes);
  return { fence, foreign: fence === null && isForeign(bytes) };
}

/**
 * What the file says, read while somebody else may be writing it: the same bytes twice in a row, or
 * nothing. Good for telling people, not for deciding.
 */
function peekFence(fd: number): Fence | null {
  for (let tries = 3; tries > 0; tries--) {
    const bytes = Buffer.from(view(fd));
    // A writer can be held up within its copy: then the same bytes are there twice, but not whole.
    if (bytes.equals(view(fd))) return parseWholeFence(bytes);
  }
  return null;
}

/** The file's first bytes, good until the next read. */
function view(fd: number): Buffer {
  return found.bytes.subarray(0, found.readFrom(fd));
}
