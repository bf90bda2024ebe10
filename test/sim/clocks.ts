/**
 * A node's clocks and timers: they run a little fast or slow, and timers are late, or even early.
 * @module
 */
import type { Clock, Timers } from "../../src/ports/clock.ts";
import type { Random } from "./random.ts";
import type { Scheduler } from "./scheduler.ts";

/** CLOCK_BOOTTIME and the wall clock of one host. */
export class SimClock implements Clock {
  readonly #scheduler: Scheduler;
  readonly #rate: number;
  readonly #offsetMs: number;
  /** Stepped by whoever sets the wall clock; no deadline may notice. */
  wallStepMs = 0;

  constructor(scheduler: Scheduler, rate: number, offsetMs: number) {
    this.#scheduler = scheduler;
    this.#rate = rate;
    this.#offsetMs = offsetMs;
  }

  bootMs(): number {
    return this.#scheduler.nowMs * this.#rate + this.#offsetMs;
  }

  wallMs(): number {
    return 1_700_000_000_000 + this.#scheduler.nowMs + this.wallStepMs;
  }

  /** When, on the perfect clock, this one reads `bootMs`. */
  perfectMs(bootMs: number): number {
    return (bootMs - this.#offsetMs) / this.#rate;
  }

  /** How long on the perfect clock what this one counts as `ms` takes. */
  perfectSpan(ms: number): number {
    return ms / this.#rate;
  }
}

/** Timers of one run of one node. */
export class SimTimers implements Timers {
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #clock: SimClock;
  readonly #deliver: (run: () => void) => void;

  constructor(
    scheduler: Scheduler,
    random: Random,
    clock: SimClock,
    deliver: (run: () => void) => void,
  ) {
    this.#scheduler = scheduler;
    this.#random = random;
    this.#clock = clock;
    this.#deliver = deliver;
  }

  after(delayMs: number, wake: () => void): () => void {
    const span = this.#clock.perfectSpan(delayMs) + this.#random.between(-0.2, 2);
    let cancelled = false;
    const task = this.#scheduler.after(span, () =>
      this.#deliver(() => {
        if (!cancelled) wake();
      }));
    return () => {
      cancelled = true;
      this.#scheduler.cancel(task);
    };
  }
}
