/**
 * Holds back what nobody waits for while the connection is busy or renewals are late. It is clocked
 * by the answers: each makes room for the next.
 * @module
 */
import type { StoreEvent } from "../lease/store_events.ts";
import type { Timers } from "../ports/clock.ts";
import type { Slot } from "./slot.ts";

/**
 * Requests in flight at which stores that nobody waits for have to wait: enough to keep the
 * connection busy over any round trip, few enough to be answered well before they time out.
 */
const WINDOW = 2_048;

/** How late due stores may be before those that only want to be acquired stand back. */
const LATE_MS = 50;

/** How many that waited are let in at once: a guard that comes waits for a slice, not for all. */
const SLICE = 64;

/** Soon, and after whatever else the event loop has to do. */
const DRAIN_AGAIN_MS = 1;

/** What a pacer looks at, and what it does. */
export interface PacerHooks {
  /** Requests to the coordinator that are not answered. */
  inFlight(): number;
  /** How late the most overdue store is. */
  lateMs(): number;
  run(slot: Slot, event: StoreEvent): void;
}

/** Events that wait for room on the connection, first come, first served. */
export class Pacer {
  readonly #timers: Timers;
  readonly #hooks: PacerHooks;
  readonly #waiting: { slot: Slot; event: StoreEvent }[] = [];
  /** How many of them were handled: taking from the front of an array would move the rest. */
  #taken = 0;
  #timerSet = false;

  constructor(timers: Timers, hooks: PacerHooks) {
    this.#timers = timers;
    this.#hooks = hooks;
  }

  /** Whether something that nobody waits for may be sent now. */
  get hasRoom(): boolean {
    // Renewals come first: what is held must not be lost for what may be held, too.
    return this.#hooks.inFlight() < WINDOW && this.#hooks.lateMs() < LATE_MS;
  }

  /** Has the event handled when there is room. */
  add(entry: { slot: Slot; event: StoreEvent }): void {
    this.#waiting.push(entry);
  }

  /** Handles a slice of what waits, as far as there is room. */
  drain(): void {
    for (let i = 0; i < SLICE && this.#taken < this.#waiting.length && this.hasRoom; i++) {
      const { slot, event } = this.#waiting[this.#taken++];
      this.#hooks.run(slot, event);
    }
    if (this.#taken === this.#waiting.length) this.#waiting.length = this.#taken = 0;
    else this.#drainLater();
  }

  /** Answers drain the rest; where none are on their way, a timer does. */
  #drainLater(): void {
    if (this.#timerSet) return;
    this.#timerSet = true;
    this.#timers.after(DRAIN_AGAIN_MS, () => {
      this.#timerSet = false;
      this.drain();
    });
  }
}
