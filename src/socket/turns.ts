/**
 * Turns of connections that have sent much at once: so that others, who ask for one thing at a time,
 * do not wait for all of it.
 * @module
 */

/** How long a connection's requests are taken before others get their turn, ms. */
export const TURN_MS = 0.5;

/** How long turns of those who have more are given before new requests are looked for, ms. */
const ROUND_MS = 2;

/** Gives turns in the order in which they were asked for. */
export class Turns {
  #waiting: (() => void)[] = [];
  #scheduled = false;

  /** Calls `take` when it is its turn, never at once. */
  add(take: () => void): void {
    this.#waiting.push(take);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#round());
  }

  #round(): void {
    this.#scheduled = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    const until = performance.now() + ROUND_MS;
    let given = 0;
    while (given < waiting.length && performance.now() < until) waiting[given++]!();
    // Who got none comes before who asked for another meanwhile.
    this.#waiting = [...waiting.slice(given), ...this.#waiting];
    if (this.#waiting.length > 0) this.#schedule();
  }
}
