/**
 * The clocks. The core never reads one: the time comes with each event.
 * @module
 */

/** Where the agent reads the time. */
export interface Clock {
  /**
   * Milliseconds (with a fraction) on CLOCK_BOOTTIME, which also runs while the machine is
   * suspended. All deadlines use it.
   */
  bootMs(): number;
  /** Milliseconds since the Unix epoch: for records and logs that people read, never for deadlines. */
  wallMs(): number;
}

/** Wakes the agent. A timer may fire late or early: whoever is woken reads the clock. */
export interface Timers {
  /** Calls `wake` about `delayMs` from now; the result cancels it. */
  after(delayMs: number, wake: () => void): () => void;
}
