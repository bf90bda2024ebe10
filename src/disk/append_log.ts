/**
 * A file of lines that only grows, and is rewritten as a whole now and then: the one way in which
 * the agent remembers things on disk.
 *
 * A line that was appended is in the page cache when `append` returns: it survives the death of
 * this process, and the power for as long as the machine has it. A durable log is flushed besides,
 * a moment later and in another thread.
 * @module
 */
import {
  closeSync,
  constants,
  fdatasync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { reasonOf } from "../sys/errno.ts";

const MODE = 0o640;
const FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;

/** Ends a line that could neither be finished nor taken back; in JSON no such character can be. */
const CANCEL = "\x18";

/** How an {@linkcode AppendLog} is kept. */
export interface AppendLogOptions {
  /** Whether lines have to survive a crash of the machine, too. */
  readonly durable: boolean;
}

/** An open log, with what it held when it was opened. */
export interface OpenedLog {
  readonly log: AppendLog;
  /** The complete lines, without those that were cancelled. */
  readonly lines: readonly string[];
  /** What follows the last newline: the beginning of a line that a crash or a full disk cut short. */
  readonly tail: string;
}

/** Lines in a file. Single user: whoever has several processes keeps them apart by a lock. */
export class AppendLog {
  readonly path: string;
  readonly #durable: boolean;
  #fd: number;
  #size: number;
  /** Whether the file ends within a line. */
  #torn: boolean;
  #flushing: number | null = null;
  #flushAgain = false;
  /** A descriptor that is closed as soon as it is flushed. */
  #retired: number | null = null;

  private constructor(path: string, fd: number, content: Buffer, options: AppendLogOptions) {
    this.path = path;
    this.#durable = options.durable;
    this.#fd = fd;
    this.#size = content.byteLength;
    this.#torn = content.byteLength > 0 && content.at(-1) !== 0x0a;
  }

  /**
   * Opens or creates the log.
   *
   * @throws what `node:fs` throws.
   */
  static open(path: string, options: AppendLogOptions): OpenedLog {
    const fd = openSync(path, FLAGS, MODE);
    try {
      const content = readFileSync(fd);
      const lines = content.toString("utf8").split("\n");
      const tail = lines.pop()!;
      return {
        log: new AppendLog(path, fd, content, options),
        lines: lines.filter((line) => !line.endsWith(CANCEL)),
        tail,
      };
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /** The file's size in bytes. */
  get size(): number {
    return this.#size;
  }

  /**
   * Appends `lines`, each without its newline, by one write. Returns null once they are written,
   * or why none of them was.
   */
  append(lines: readonly string[]): string | null {
    const text = (this.#torn ? `${CANCEL}\n` : "") + lines.join("\n") + "\n";
    const bytes = Buffer.from(text);
    let written = 0;
    try {
      written = writeSync(this.#fd, bytes);
      if (written === bytes.byteLength) {
        this.#torn = false;
        this.#size += written;
        if (this.#durable) this.#flush();
        return null;
      }
    } catch (error) {
      return `Cannot write ${this.path}: ${reasonOf(error)}`;
    }
    this.#takeBack(written);
    return `Cannot write ${this.path}: no space left on device`;
  }

  /**
   * Replaces all lines, in one step for whoever looks and for a crash. Returns null, or why it could
   * not be done; then all lines are as before, but for a failure of the last step: whether the new
   * ones would survive a crash of the machine.
   */
  rewrite(lines: readonly string[]): string | null {
    const bytes = Buffer.from(lines.map((line) => line + "\n").join(""));
    const draft = `${this.path}.new`;
    let fd: number | null = null;
    try {
      fd = openSync(draft, FLAGS | constants.O_TRUNC, MODE);
      writeAll(fd, bytes);
      if (this.#durable) fsyncSync(fd);
      renameSync(draft, this.path);
    } catch (error) {
      if (fd !== null) {
        closeSync(fd);
        discard(draft);
      }
      return `Cannot rewrite ${this.path}: ${reasonOf(error)}`;
    }
    this.#retire(this.#fd);
    this.#fd = fd;
    this.#size = bytes.byteLength;
    this.#torn = false;
    return this.#durable ? flushDirectory(dirname(this.path)) : null;
  }

  /** Closes the file; the log is not used afterwards. */
  close(): void {
    this.#retire(this.#fd);
    this.#fd = -1;
  }

  /** Removes the beginning of a line that did not fit, or remembers that it is there. */
  #takeBack(written: number): void {
    if (written === 0) return;
    try {
      ftruncateSync(this.#fd, this.#size);
    } catch {
      this.#torn = true;
      this.#size += written;
    }
  }

  /** Has everything written so far flushed, by one flush for all that is written while one runs. */
  #flush(): void {
    if (this.#flushing !== null) {
      this.#flushAgain = true;
      return;
    }
    const fd = this.#fd;
    this.#flushing = fd;
    // A failed flush cannot be repeated: the kernel has dropped the pages. They are still in the
    // file for as long as the machine runs, and a crash of it is not known to come.
    fdatasync(fd, () => {
      this.#flushing = null;
      if (this.#retired === fd) {
        this.#retired = null;
        closeSync(fd);
      }
      if (!this.#flushAgain) return;
      this.#flushAgain = false;
      if (this.#fd >= 0) this.#flush();
    });
  }

  #retire(fd: number): void {
    if (this.#flushing === fd) this.#retired = fd;
    else closeSync(fd);
  }
}

function writeAll(fd: number, bytes: Buffer): void {
  for (let at = 0; at < bytes.byteLength;) {
    const written = writeSync(fd, bytes, at);
    if (written === 0) throw new Error("no space left on device (ENOSPC)");
    at += written;
  }
}

function discard(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It is overwritten by the next try.
  }
}

/** Makes a rename in `directory` survive a crash of the machine. */
function flushDirectory(directory: string): string | null {
  let fd: number | null = null;
  try {
    fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
    fsyncSync(fd);
    return null;
  } catch (error) {
    return `Cannot flush ${directory}: ${reasonOf(error)}`;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}
