/**
 * Giving leases up: grants finish, then the lease is released, store by store, pipelined.
 * @module
 */
import type { StoreEvent } from "../lease/store_events.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { Slot } from "./slot.ts";

/** Told what came of a drain: leases released, and those that age out or were lost instead. */
export type Drained = (result: { released: number; remaining: number }) => void;

interface Drain {
  /** Stores whose leases have not gone yet, with whether they were ours at the start. */
  readonly left: Map<Slot, boolean>;
  readonly done: Drained;
  /** How long grants may go on; boot clock. */
  readonly finishByMs: number;
  released: number;
  lost: number;
  cancelTimer: () => void;
}

/** Every drain under way. */
export class Drains {
  readonly #ports: { clock: Clock; timers: Timers };
  readonly #withinMs: number;
  readonly #send: (slot: Slot, event: StoreEvent) => void;
  readonly #all = new Set<Drain>();

  constructor(
    ports: { clock: Clock; timers: Timers },
    withinMs: number,
    send: (slot: Slot, event: StoreEvent) => void,
  ) {
    this.#ports = ports;
    this.#withinMs = withinMs;
    this.#send = send;
  }

  /** Drains the stores; `done` is told what came of it, at the latest when time is up. */
  begin(slots: readonly Slot[], block: { reason: string; forMs: number }, done: Drained): void {
    const left = new Map(slots.filter(isBusy).map((slot) => [slot, isOurs(slot)]));
    const finishByMs = this.#ports.clock.bootMs() + this.#withinMs;
    const drain = { left, done, finishByMs, released: 0, lost: 0, cancelTimer: () => {} };
    this.#all.add(drain);
    drain.cancelTimer = this.#ports.timers.after(this.#withinMs, () => this.#finish(drain));
    for (const slot of slots) this.#send(slot, { type: "drain", ...block, finishByMs });
    this.#settle(drain);
  }

  /** How long grants may finish yet where something is drained, in milliseconds; else 0. */
  get leftMs(): number {
    const endMs = Math.max(0, ...[...this.#all].map((drain) => drain.finishByMs));
    return Math.max(0, endMs - this.#ports.clock.bootMs());
  }

  /** Something happened to a store: it is not busy any more, perhaps, without having been released. */
  notice(slot: Slot): void {
    if (this.#all.size > 0 && !isBusy(slot)) this.#gone(slot, "lost");
  }

  /** The store's lease was released, though it may be ours again by now. */
  released(slot: Slot): void {
    this.#gone(slot, "released");
  }

  #gone(slot: Slot, how: "released" | "lost"): void {
    for (const drain of this.#all) {
      const wasOurs = drain.left.get(slot);
      if (!drain.left.delete(slot)) continue;
      if (wasOurs) drain[how]++;
      this.#settle(drain);
    }
  }

  #settle(drain: Drain): void {
    if (drain.left.size === 0) this.#finish(drain);
  }

  #finish(drain: Drain): void {
    if (!this.#all.delete(drain)) return;
    drain.cancelTimer();
    drain.done({ released: drain.released, remaining: drain.left.size + drain.lost });
    for (const slot of drain.left.keys()) this.#send(slot, { type: "drain_over" });
  }
}

/** Whether the store's lease is ours, may become ours, or is being released. */
function isBusy({ store }: Slot): boolean {
  const { phase } = store.lease;
  return phase === "ours" || phase === "releasing" || phase === "acquiring" || store.unfinished > 0;
}

function isOurs({ store }: Slot): boolean {
  return store.lease.phase === "ours" || store.lease.phase === "releasing";
}
