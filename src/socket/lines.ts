/**
 * Bytes in, lines out: the framing under the protocol, for both ends of a connection.
 *
 * Pull, not push: a chunk is handed in whole and lines are taken one by one, so that a reader can stop
 * in the middle of a chunk. Each byte is looked at once and copied at most once (amortised), in however
 * many pieces it arrives.
 * @module
 */
import { Buffer, isUtf8 } from "node:buffer";

/** A line longer than the limit; told once, the rest of that line is dropped unread. */
export const TOO_LONG = Symbol("line too long");
/** A line that is not UTF-8. */
export const NOT_UTF8 = Symbol("line not UTF-8");

/** A line without its newline, or what is wrong with it. */
export type Line = string | typeof TOO_LONG | typeof NOT_UTF8;

const NEWLINE = 10;
/** Most lines split over chunks are small; a power of two, doubled as the line grows. */
const FIRST_PARTIAL_BYTES = 4096;
/** What native decoding puts where bytes are not UTF-8, and also a character of its own. */
const REPLACEMENT = "\uFFFD";

/** Splits a stream of bytes into lines of at most `maxLineBytes`, the newline not counted. */
export class LineSplitter {
  readonly #maxLineBytes: number;
  #chunk: Buffer | null = null;
  #offset = 0;
  /** The start of a line whose end has not come yet: the first `#partialBytes` of `#partial`. */
  #partial: Buffer | null = null;
  #partialBytes = 0;
  #skipping = false;

  constructor(maxLineBytes: number) {
    this.#maxLineBytes = maxLineBytes;
  }

  /** Bytes held back: an unfinished line, and what was not taken yet. */
  get bufferedBytes(): number {
    return this.#partialBytes + (this.#chunk === null ? 0 : this.#chunk.length - this.#offset);
  }

  /** Hands in the next bytes, which must not be changed until {@linkcode next} returned null. */
  push(chunk: Buffer): void {
    if (this.#chunk !== null) {
      // Only a reader that pushes before it took everything comes here.
      chunk = Buffer.concat([this.#chunk.subarray(this.#offset), chunk]);
    }
    this.#chunk = chunk;
    this.#offset = 0;
  }

  /** The next line, or null when more bytes are needed. Empty lines are passed over. */
  next(): Line | null {
    while (this.#chunk !== null) {
      const line = this.#take(this.#chunk);
      if (line !== null && line !== "" && line !== "\r") return line;
    }
    return null;
  }

  /** At the end of the stream: a last line that no newline ended, or null. */
  end(): Line | null {
    if (this.#skipping || this.#partialBytes === 0) return null;
    const line = decode(this.#partial!, 0, this.#partialBytes);
    this.#clearPartial();
    return line === "\r" ? null : line;
  }

  /** A line of `chunk`, or null when there is none to give now. */
  #take(chunk: Buffer): Line | null {
    const start = this.#offset;
    const newline = chunk.indexOf(NEWLINE, start);
    const end = newline === -1 ? chunk.length : newline;
    const tooLong = !this.#skipping && this.#partialBytes + end - start > this.#maxLineBytes;
    this.#advance(chunk, end + 1);
    if (newline === -1) {
      if (tooLong) {
        this.#skipping = true;
        this.#clearPartial();
        return TOO_LONG;
      }
      if (!this.#skipping) this.#keep(chunk, start);
      return null;
    }
    if (this.#skipping) {
      this.#skipping = false;
      return null;
    }
    if (tooLong) {
      this.#clearPartial();
      return TOO_LONG;
    }
    if (this.#partialBytes === 0) return decode(chunk, start, end);
    this.#append(chunk, start, end);
    const line = decode(this.#partial!, 0, this.#partialBytes);
    this.#clearPartial();
    return line;
  }

  #advance(chunk: Buffer, offset: number): void {
    if (offset >= chunk.length) this.#chunk = null;
    else this.#offset = offset;
  }

  #keep(chunk: Buffer, start: number): void {
    if (start < chunk.length) this.#append(chunk, start, chunk.length);
  }

  #append(chunk: Buffer, start: number, end: number): void {
    const bytes = this.#partialBytes + end - start;
    if (this.#partial === null || this.#partial.length < bytes) {
      let capacity = this.#partial?.length ?? FIRST_PARTIAL_BYTES;
      while (capacity < bytes) capacity *= 2;
      const grown = Buffer.allocUnsafeSlow(capacity);
      this.#partial?.copy(grown, 0, 0, this.#partialBytes);
      this.#partial = grown;
    }
    chunk.copy(this.#partial, this.#partialBytes, start, end);
    this.#partialBytes = bytes;
  }

  #clearPartial(): void {
    this.#partialBytes = 0;
    // A small one is kept for the next line; one long line must not hold a megabyte for ever.
    if (this.#partial !== null && this.#partial.length > FIRST_PARTIAL_BYTES) this.#partial = null;
  }
}

function decode(bytes: Buffer, start: number, end: number): Line {
  const text = bytes.toString("utf8", start, end);
  if (text.includes(REPLACEMENT) && !isUtf8(bytes.subarray(start, end))) return NOT_UTF8;
  return text;
}
