/**
 * How many requests may be in flight before those that nobody waits for have to wait.
 *
 * What is in flight stands before a guard that comes now: at the server, on the wire, and in our own
 * buffers. So the window is no larger than it takes to keep all of them busy. Which that is, the
 * answers tell: while they come as quickly as ever there is room, and when they take longer than
 * that, requests only wait for each other.
 * @module
 */

/** Never fewer: a coordinator that is slow for other reasons must not stop the acquiring of stores. */
const LEAST = 64;

/** Never more, over any round trip: so many are still answered well before they time out. */
const MOST = 2_048;

/** What may be waited for at once at first: a local coordinator needs no more. */
const FIRST = 256;

/** How much longer than the quickest an answer may take, in milliseconds: what a guard notices. */
const PATIENCE_MS = 8;

/** Growth at each answer in time, shrinking at each late one. */
const MORE = 64;
const LESS = 0.7;

/** A window that is sized by how long answers take. */
export class Window {
  #size = FIRST;
  #quickestMs = Infinity;
  #sentMs: number | null = null;

  /** How many may be in flight now. */
  get size(): number {
    return this.#size;
  }

  /** Whether the next request is to be timed: one at a time is, so that it costs the others nothing. */
  get wantsSample(): boolean {
    return this.#sentMs === null;
  }

  /** The request that is timed is sent. */
  sent(nowMs: number): void {
    this.#sentMs = nowMs;
  }

  /**
   * It was answered (`isTold`), or is given up, or was refused by somebody who has nothing to do for it: how quick
   * that was says nothing of how quick an answer can be.
   */
  answered(nowMs: number, isTold: boolean): void {
    const tookMs = nowMs - this.#sentMs!;
    this.#sentMs = null;
    if (isTold) this.#quickestMs = Math.min(this.#quickestMs, tookMs);
    if (tookMs > this.#quickestMs + PATIENCE_MS) {
      this.#size = Math.max(LEAST, Math.floor(this.#size * LESS));
    } else if (isTold) this.#size = Math.min(MOST, this.#size + MORE);
  }

  /** Another connection, which may lead farther: what was quick is measured anew. */
  reset(): void {
    this.#size = FIRST;
    this.#quickestMs = Infinity;
  }
}
