/**
 * The runtime's own clock and timers behind the ports, for tests of adapters that need no
 * particular clock.
 * @module
 */
import type { Clock, Timers } from "../../src/ports/clock.ts";

export const plainClock: Clock = {
  bootMs: () => performance.now(),
  wallMs: () => Date.now(),
};

export const plainTimers: Timers = {
  after(delayMs, wake) {
    const timer = setTimeout(wake, delayMs);
    return () => clearTimeout(timer);
  },
};
