/**
 * The machine's clocks and timers.
 * @module
 */
import { PassingMap } from "../lease/passing_map.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import { bootTimeMs } from "../sys/boot_time.ts";

/** Reads CLOCK_BOOTTIME for deadlines and the wall clock for people. */
export class BootClock implements Clock {
  bootMs(): number {
    return bootTimeMs();
  }

  wallMs(): number {
    return Date.now();
  }
}

/** The longest delay that `setTimeout` takes; it fires at once for a longer one. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** How often to look whether the machine was suspended: a tenth of the shortest sensible TTL and grace. */
const SUSPEND_CHECK_MS = 300;

/** Clocks drift apart by microseconds between two checks; a suspend takes seconds. */
const SUSPEND_MIN_MS = 100;

/** Where {@linkcode SystemTimers} gets the time; for tests of suspending. */
export interface TimerClocks {
  /** Milliseconds on a clock that runs on in suspend. */
  readonly bootMs: () => number;
  /** Milliseconds on the clock that the runtime's timers use. */
  readonly monotonicMs: () => number;
}

interface Pending {
  readonly dueBootMs: number;
  readonly handle: ReturnType<typeof setTimeout>;
  readonly fire: () => void;
}

/**
 * Timers on `setTimeout`, which stands still while the machine is suspended: after a resume, those
 * that are due by CLOCK_BOOTTIME fire at the next check instead of so much too late. A pending
 * timer keeps the process alive, like any wait that somebody is owed the end of; the check for
 * suspends does not.
 */
export class SystemTimers implements Timers {
  readonly #clocks: TimerClocks;
  readonly #pending = new PassingMap<Pending, null>();
  #check: ReturnType<typeof setInterval> | null = null;
  /** How far the two clocks are apart: grows with each suspend. */
  #apartMs = 0;

  /** Uses the machine's clocks, unless others are given. */
  constructor(clocks: TimerClocks = { bootMs: bootTimeMs, monotonicMs: () => performance.now() }) {
    this.#clocks = clocks;
  }

  after(delayMs: number, wake: () => void): () => void {
    const ms = Math.min(Math.max(delayMs, 0) || 0, MAX_DELAY_MS);
    const fire = () => {
      if (this.#forget(timer)) wake();
    };
    const dueBootMs = this.#clocks.bootMs() + ms;
    const timer: Pending = { dueBootMs, handle: setTimeout(fire, ms), fire };
    this.#pending.set(timer, null);
    this.#watch();
    return () => {
      this.#forget(timer);
    };
  }

  /** Whether it was still pending. */
  #forget(timer: Pending): boolean {
    clearTimeout(timer.handle);
    return this.#pending.delete(timer);
  }

  #watch(): void {
    if (this.#check) return;
    this.#apartMs = this.#clocks.bootMs() - this.#clocks.monotonicMs();
    this.#check = setInterval(() => this.#look(), SUSPEND_CHECK_MS);
    this.#check.unref();
  }

  #look(): void {
    const bootMs = this.#clocks.bootMs();
    const apartMs = bootMs - this.#clocks.monotonicMs();
    const suspended = apartMs - this.#apartMs > SUSPEND_MIN_MS;
    this.#apartMs = apartMs;
    if (suspended) {
      // A timer may set or cancel others: those are looked at again as they are, not as they were.
      for (const timer of [...this.#pending.keys()]) if (timer.dueBootMs <= bootMs) timer.fire();
    }
    if (this.#pending.size > 0 || !this.#check) return;
    clearInterval(this.#check);
    this.#check = null;
  }
}
