/**
 * Chance by a seed: a run's faults, clients and choices are the same each time, though the machine's
 * timing is not.
 * @module
 */

/** A stream of random numbers (mulberry32: 32 bits of state are plenty for choosing faults). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** At least 0, below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number, both ends included. */
  int(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.int(0, list.length - 1)];
  }

  /** A stream of its own, which does not depend on how much is drawn from this one later. */
  fork(): Random {
    return new Random(this.int(0, 2 ** 32 - 1));
  }
}
