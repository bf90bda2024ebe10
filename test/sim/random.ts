/**
 * The simulator's only source of chance: xoshiro128** 1.1 by David Blackman and Sebastiano Vigna
 * (https://prng.di.unimi.it/xoshiro128starstar.c), its state filled by splitmix32 from one seed.
 * @module
 */

/** A stream of numbers that a seed determines. */
export class Random {
  readonly #s = new Uint32Array(4);

  constructor(seed: number) {
    let z = seed | 0;
    for (let i = 0; i < 4; i++) {
      z = (z + 0x9e3779b9) | 0;
      let x = z ^ (z >>> 16);
      x = Math.imul(x, 0x21f0aaad);
      x ^= x >>> 15;
      x = Math.imul(x, 0x735a2d97);
      this.#s[i] = x ^ (x >>> 15);
    }
    // Both halves of the seed count, so that seeds beyond 32 bits and below zero are their own.
    this.#s[3] += Math.imul(Math.floor(seed / 0x1_0000_0000), 0x9e3779b1);
    // The one state that the generator cannot leave.
    if (this.#s.every((word) => word === 0)) this.#s[0] = 1;
  }

  /** A stream that goes on from a state of four words. */
  static from(state: readonly number[]): Random {
    const random = new Random(0);
    random.#s.set(state);
    return random;
  }

  /** 32 random bits. */
  bits(): number {
    const s = this.#s;
    const five = Math.imul(s[1], 5);
    const result = Math.imul((five << 7) | (five >>> 25), 9) >>> 0;
    const t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 11) | (s[3] >>> 21);
    return result;
  }

  /** From 0, never 1. */
  unit(): number {
    return this.bits() / 0x1_0000_0000;
  }

  /** From `low`, never `high`. */
  between(low: number, high: number): number {
    return low + (high - low) * this.unit();
  }

  /** A whole number from 0, never `count`. */
  below(count: number): number {
    return Math.floor(this.unit() * count);
  }

  /** True in so many of one cases. */
  chance(probability: number): boolean {
    return this.unit() < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)];
  }

  /** Exponentially distributed around a mean: how long until the next of what happens at random. */
  about(mean: number): number {
    return -mean * Math.log(1 - this.unit());
  }
}
