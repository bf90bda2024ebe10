/**
 * Holds back what nobody waits for while the connection is busy or renewals are late. It is clocked
 * by the answers: each makes room for the next.
 * @module
 */
import type { Timers } from "../ports/clock.ts";
import type { Slot } from "./slot.ts";
import { LATE_MS } from "./stand_back.ts";

/** How many that waited are let in at once: a guard that comes waits for a slice, not for all. */
const SLICE = 64;

/** Soon, and after whatever else the event loop has to do. */
const DRAIN_AGAIN_MS = 1;

/** When so many at the front are done with, they are dropped: moving the rest is paid for by then. */
const DROP_AT = 1_024;

/** What a pacer looks at, and what it does. */
export interface PacerHooks {
  /** Requests to the coordinator that are not answered, and how many may be. */
  inFlight(): number;
  window(): number;
  /** How late the most overdue store is. */
  lateMs(): number;
  /** A store's turn: it is `connected` or only ticked. */
  run(slot: Slot, what: PacedEvent): void;
}

/** What a store may wait for room to be told. */
export type PacedEvent = "tick" | "connected";

/** Stores that wait for room on the connection, first come, first served. */
export class Pacer {
  readonly #timers: Timers;
  readonly #hooks: PacerHooks;
  #slots: Slot[] = [];
  #events: PacedEvent[] = [];
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
    return this.#hooks.inFlight() < this.#hooks.window() && this.#hooks.lateMs() < LATE_MS;
  }

  /** Has the event handled when there is room. */
  add(slot: Slot, event: PacedEvent): void {
    this.#slots.push(slot);
    this.#events.push(event);
  }

  /** Handles a slice of what waits, as far as there is room. */
  drain(): void {
    if (this.#slots.length === 0) return;
    for (let i = 0; i < SLICE && this.#taken < this.#slots.length && this.hasRoom; i++) {
      const at = this.#taken++;
      this.#hooks.run(this.#slots[at], this.#events[at]);
    }
    this.#dropTaken();
    if (this.#slots.length > 0) this.#drainLater();
  }

  #dropTaken(): void {
    const taken = this.#taken;
    if (taken < this.#slots.length && taken < Math.max(DROP_AT, this.#slots.length / 2)) return;
    this.#slots = this.#slots.slice(taken);
    this.#events = this.#events.slice(taken);
    this.#taken = 0;
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
