/** Time that passes only when a test says so. */
import type { Clock, Timers } from "../../src/ports/clock.ts";

interface Timer {
  readonly atMs: number;
  readonly wake: () => void;
}

/** A clock with its timers. */
export class FakeTime implements Clock, Timers {
  #nowMs = 1_000;
  readonly #timers = new Set<Timer>();
  /** Every delay that was asked for. */
  readonly delaysMs: number[] = [];

  bootMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, wake: () => void): () => void {
    this.delaysMs.push(delayMs);
    const timer = { atMs: this.#nowMs + delayMs, wake };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** How many timers are set. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Lets time pass up to the next timer and wakes it; false when there is none. */
  step(): boolean {
    const [next] = [...this.#timers].sort((a, b) => a.atMs - b.atMs);
    if (!next) return false;
    this.#timers.delete(next);
    this.#nowMs = Math.max(this.#nowMs, next.atMs);
    next.wake();
    return true;
  }
}
