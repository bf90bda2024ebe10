/**
 * A wait that can be cut short.
 * @module
 */
import type { Clock, Timers } from "../ports/clock.ts";

/** One wait at a time. */
export class Pause {
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #leastMs: number;
  #startMs = 0;
  #wake: (() => void) | null = null;
  #soon = false;
  /** Whether a trigger came between two waits. */
  #triggered = false;
  #ended = false;

  /** @param leastMs how long a wait lasts at least where it is only cut "soon", in milliseconds */
  constructor(source: { readonly clock: Clock; readonly timers: Timers }, leastMs: number) {
    this.#clock = source.clock;
    this.#timers = source.timers;
    this.#leastMs = leastMs;
  }

  /** Waits so many milliseconds, or until `sooner` resolves, or the wait is cut. */
  async for(delayMs: number, sooner?: Promise<unknown>): Promise<void> {
    if (this.#ended) return;
    this.#startMs = this.#clock.bootMs();
    this.#soon = false;
    const cut = new Promise<void>((resolve) => (this.#wake = resolve));
    const cancel = this.#timers.after(delayMs, () => this.#wake?.());
    if (this.#triggered) this.cutSoon();
    this.#triggered = false;
    await (sooner === undefined ? cut : Promise.race([cut, sooner]));
    cancel();
    this.#wake = null;
  }

  /** Ends the wait now. */
  cut(): void {
    this.#wake?.();
  }

  /** Ends the wait now, and every further one before it begins. */
  end(): void {
    this.#ended = true;
    this.cut();
  }

  /**
   * Ends the wait once it has lasted the least time, or the next one where there is none now: for
   * triggers that may come in a storm.
   */
  cutSoon(): void {
    const wake = this.#wake;
    if (wake === null) this.#triggered = true;
    if (wake === null || this.#soon) return;
    this.#soon = true;
    const restMs = this.#startMs + this.#leastMs - this.#clock.bootMs();
    if (restMs <= 0) wake();
    else this.#timers.after(restMs, wake);
  }
}
