/**
 * Where the log's lines go, whatever becomes of that place.
 * @module
 */
import { writeSync } from "node:fs";
import { codeOf } from "../sys/errno.ts";

/** Takes whole lines. */
export interface Lines {
  write(line: string): void;
}

/**
 * How long a line waits for a pipe that is full and does not block. Longer than a busy reader takes, and
 * short beside a renewal's time.
 */
const PATIENCE_MS = 100;

/**
 * Writes lines to a descriptor, at once, so that what was logged is there when the process dies the next
 * moment. Where they cannot be written (a full disk, a reader that is gone) they are lost and counted:
 * leases that many wait for do not end because nobody can read of them.
 */
export class LogFile implements Lines {
  readonly #fd: number;
  #lost = 0;
  /** Whether the last line was written whole. */
  #well = true;
  /** Whether a part of a line stands there without its end. */
  #cut = false;

  constructor(fd: number) {
    this.#fd = fd;
  }

  write(line: string): void {
    const bytes = Buffer.from(this.#cut ? `\n${line}` : line);
    const written = this.#write(bytes);
    this.#well = written === bytes.length;
    if (this.#well) this.#cut = false;
    else this.#lost++;
    // Of nothing, the cut is as it was.
    if (!this.#well && written > 0) this.#cut = true;
  }

  /** How many lines were lost, once lines can be written again; then they are forgotten. */
  takeLost(): number {
    if (!this.#well) return 0;
    const lost = this.#lost;
    this.#lost = 0;
    return lost;
  }

  #write(bytes: Uint8Array): number {
    // Who waited in vain for the last line does not wait for this one.
    const untilMs = performance.now() + (this.#well ? PATIENCE_MS : 0);
    let written = 0;
    while (written < bytes.length) {
      try {
        written += writeSync(this.#fd, bytes.subarray(written));
      } catch (error) {
        if (codeOf(error) !== "EAGAIN" || performance.now() >= untilMs) break;
        Bun.sleepSync(1);
      }
    }
    return written;
  }
}
