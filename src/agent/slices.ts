/**
 * Much work at a time, as a question about ten thousand stores is: done in slices, between which
 * everybody else has their turn.
 * @module
 */
import type { Clock, Timers } from "../ports/clock.ts";
import { pauseMs } from "./stand_back.ts";

/** How long such work goes on at a time, in milliseconds: who comes meanwhile waits no longer. */
const SLICE_MS = 2;

/** Does a little of some work, microseconds of it; tells whether there is more. */
export type Work = () => boolean;

/** Work that is under way, each a little in turn. */
export class Slices {
  readonly #ports: { readonly clock: Clock; readonly timers: Timers };
  readonly #lateMs: () => number;
  #waiting: Work[] = [];
  #timerSet = false;

  /** `lateMs`: how late renewals are. */
  constructor(
    ports: { readonly clock: Clock; readonly timers: Timers },
    { lateMs }: { lateMs: () => number },
  ) {
    this.#ports = ports;
    this.#lateMs = lateMs;
  }

  /** Does the work, at once if it is little and nobody is before it. */
  do(work: Work): void {
    this.#waiting.push(work);
    if (!this.#timerSet) this.#slice();
  }

  #slice(): void {
    const { clock } = this.#ports;
    const endMs = clock.bootMs() + SLICE_MS;
    // In turn: little work does not wait for much.
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      if (next()) this.#waiting.push(next);
      if (clock.bootMs() >= endMs) break;
    }
    if (this.#waiting.length === 0) return;
    this.#timerSet = true;
    this.#ports.timers.after(pauseMs(this.#lateMs()), () => {
      this.#timerSet = false;
      this.#slice();
    });
  }
}

/** How many are handled before the clock is looked at: some tens of microseconds. */
const AT_A_TIME = 16;

/** Work on each of these, until one says false. */
export function forEach<T>(items: readonly T[], each: (item: T) => boolean): Work {
  let at = 0;
  return () => {
    const end = Math.min(at + AT_A_TIME, items.length);
    while (at < end) if (!each(items[at++])) return false;
    return at < items.length;
  };
}
