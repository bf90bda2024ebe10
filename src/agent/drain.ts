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
  released: number;
  lost: number;
  cancelTimer: () => void;
}

/** Every drain under way. */
export class Drains {
  readonly #ports: { clock: Clock; timers: Timers };
  readonly #send: (slot: Slot, event: StoreEvent) => void;
  readonly #all = new Set<Drain>();

  constructor(
    ports: { clock: Clock; timers: Timers },
    send: (slot: Slot, event: StoreEvent) => void,
  ) {
    this.#ports = ports;
    this.#send = send;
  }

  /** Drains the stores; `done` is told what came of it, after at most `withinMs`. */
  begin(
    slots: readonly Slot[],
    block: { reason: string; forMs: number },
    { withinMs, done }: { withinMs: number; done: Drained },
  ): void {
    const left = new Map(slots.filter(isBusy).map((slot) => [slot, isOurs(slot)]));
    const drain: Drain = { left, done, released: 0, lost: 0, cancelTimer: () => {} };
    this.#all.add(drain);
    drain.cancelTimer = this.#ports.timers.after(withinMs, () => this.#finish(drain));
    const finishByMs = this.#ports.clock.bootMs() + withinMs;
    for (const slot of slots) this.#send(slot, { type: "drain", ...block, finishByMs });
    this.#settle(drain);
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
