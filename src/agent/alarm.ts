/**
 * Ticks stores when they are due: one timer for all of them, and slices between which everything
 * else has its turn.
 * @module
 */
import type { Clock, Timers } from "../ports/clock.ts";
import type { Slot } from "./slot.ts";
import { Wakes } from "./wakes.ts";

/** How long due stores are ticked before anything else gets its turn: a guard waits no longer. */
const TICK_SLICE_MS = 5;

/** How much later a store is ticked that may wait; in milliseconds. */
const WAIT_MS = 100;

/** What an alarm does with the stores that are due. */
export interface AlarmHooks {
  /** Ticks a store; returns the time at which that was done. */
  tick(slot: Slot): number;
  /** Whether a store that is due can as well be ticked a little later, and had better be. */
  mayWait(slot: Slot, nowMs: number): boolean;
  /** A slice of them was ticked. */
  ticked(): void;
}

/** Who is to be ticked when. */
export class Alarm {
  readonly #ports: { readonly clock: Clock; readonly timers: Timers };
  readonly #hooks: AlarmHooks;
  readonly #wakes = new Wakes<Slot>();
  #cancelTimer: (() => void) | null = null;
  #timerMs = Infinity;

  constructor(ports: { readonly clock: Clock; readonly timers: Timers }, hooks: AlarmHooks) {
    this.#ports = ports;
    this.#hooks = hooks;
  }

  /** How late the most overdue store is, in milliseconds: 0 while timers are in time. */
  get overdueMs(): number {
    return Math.max(0, this.#ports.clock.bootMs() - this.#wakes.nextMs);
  }

  /** The store wants a tick at `atMs`. Counts from the next {@linkcode Alarm.arm}. */
  set(slot: Slot, atMs: number, nowMs: number): void {
    this.#wakes.set(slot, atMs, nowMs);
  }

  /** Sets the timer for the earliest wake, if it is not set for that or earlier. */
  arm(): void {
    const atMs = this.#wakes.nextMs;
    if (atMs >= this.#timerMs) return;
    this.#cancelTimer?.();
    this.#timerMs = atMs;
    const delayMs = Math.max(0, atMs - this.#ports.clock.bootMs());
    this.#cancelTimer = this.#ports.timers.after(delayMs, () => this.#ring());
  }

  /** Ticks nobody any more. */
  close(): void {
    this.#cancelTimer?.();
  }

  #ring(): void {
    this.#cancelTimer = null;
    // Set once for all that is ticked now.
    this.#timerMs = -Infinity;
    const startMs = this.#ports.clock.bootMs();
    for (let nowMs = startMs; nowMs < startMs + TICK_SLICE_MS;) {
      const slot = this.#wakes.takeDue(nowMs);
      if (slot === undefined) break;
      if (this.#hooks.mayWait(slot, nowMs)) {
        this.#wakes.set(slot, nowMs + WAIT_MS, nowMs);
        nowMs = this.#ports.clock.bootMs();
      } else {
        nowMs = this.#hooks.tick(slot);
      }
    }
    this.#timerMs = Infinity;
    this.arm();
    this.#hooks.ticked();
  }
}
