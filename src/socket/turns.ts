/**
 * Turns of connections that have sent much at once: so that others, who ask for one thing at a time,
 * do not wait for all of it.
 * @module
 */

/** How long a connection's requests are taken before others get their turn, ms. */
export const TURN_MS = 0.2;

/** How long turns of those who have more are given before new requests are looked for, ms. */
const ROUND_MS = 1;

/** Gives turns in the order in which they were asked for. */
export class Turns {
  readonly #waiting: (() => void)[] = [];
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
    const until = performance.now() + ROUND_MS;
    let given = 0;
    // Also to those who ask for another turn meanwhile: one alone does not have to wait for nobody.
    while (given < this.#waiting.length && performance.now() < until) this.#waiting[given++]!();
    this.#waiting.splice(0, given);
    this.#scheduled = false;
    if (this.#waiting.length > 0) this.#schedule();
  }
}
