/**
 * Giving leases up: grants finish, then the lease is released, store by store, pipelined.
 * @module
 */
import type { StoreEvent } from "../lease/store_events.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { Slot } from "./slot.ts";
import { type DrainOrder, type StandingOrder, StepDowns } from "./stepdowns.ts";

/** What came of a drain. */
export interface DrainResult {
  /** Leases given back: others can have them now. */
  readonly released: number;
  /** Leases that were not: kept because a grant did not finish, lost, or left to age out. */
  readonly remaining: number;
  /** Those of them that are given up, but whose entries are still there until they age out. */
  readonly aging: number;
  /** Whether another order came meanwhile, for some of the stores at least: this one counts no more there. */
  readonly overtaken: boolean;
}

/** Told once what came of a drain. */
export type Drained = (result: DrainResult) => void;

/** The stores, as the engine has them. */
interface Stores {
  readonly slots: ReadonlyMap<string, Slot>;
  slot(code: string): Slot;
  dispatch(slot: Slot, event: StoreEvent): void;
}

interface Drain {
  /** Null: every one. */
  readonly store: string | null;
  /** Stores whose leases have not gone yet, with whether they were ours at the start. */
  readonly left: Map<Slot, boolean>;
  readonly done: Drained;
  /** How long grants may go on; boot clock. */
  readonly finishByMs: number;
  readonly order: DrainOrder;
  /** The order for every store that this drain carries out; null for a single store. */
  readonly standing: StandingOrder | null;
  /** Stores that became known since all of them began to be drained. */
  readonly late: Slot[];
  readonly count: { released: number; aging: number; lost: number };
  overtaken: boolean;
  cancelTimer: () => void;
}

/** Every drain under way. */
export class Drains {
  readonly #stores: Stores;
  readonly #ports: { clock: Clock; timers: Timers };
  readonly #withinMs: number;
  readonly #all = new Set<Drain>();
  /** Those in force. */
  readonly stepDowns: StepDowns;

  constructor(stores: Stores, ports: { clock: Clock; timers: Timers }, withinMs: number) {
    this.#stores = stores;
    this.#ports = ports;
    this.#withinMs = withinMs;
    this.stepDowns = new StepDowns(stores.slots, ports.clock);
  }

  /**
   * Drains one store, or all (null), also those that become known only then; what was ordered for them
   * before counts no more, but for a shutdown. `done` is told what came of it, at the latest when time is
   * up.
   */
  begin(store: string | null, order: DrainOrder, done: Drained): void {
    for (const earlier of this.#all) {
      if (store === null || earlier.store === null || earlier.store === store) {
        earlier.overtaken = true;
      }
    }
    const standing = store === null ? this.stepDowns.ofEverything(order) : null;
    if (store !== null) this.stepDowns.ofOne(store);
    const slots = store === null ? [...this.#stores.slots.values()] : [this.#stores.slot(store)];
    const finishByMs = this.#ports.clock.bootMs() + this.#withinMs;
    const drain: Drain = {
      store,
      left: new Map(slots.filter(isBusy).map((slot) => [slot, isOurs(slot)])),
      standing,
      late: [],
      done,
      finishByMs,
      order,
      count: { released: 0, aging: 0, lost: 0 },
      overtaken: false,
      cancelTimer: () => {},
    };
    this.#all.add(drain);
    drain.cancelTimer = this.#ports.timers.after(this.#withinMs, () => this.#finish(drain));
    for (const slot of slots) this.#stores.dispatch(slot, { type: "drain", ...order, finishByMs });
    this.#settle(drain);
  }

  /** A store has just become known: where all are drained it is left alone for as long as they are. */
  added(slot: Slot): void {
    const standing = this.stepDowns.ofNewcomer(slot.store.code);
    if (standing === null) return;
    const { order: { reason, forMs }, untilMs } = standing;
    const untilOver = untilMs === Infinity;
    const leftMs = untilOver ? forMs : untilMs - this.#ports.clock.bootMs();
    this.#stores.dispatch(slot, { type: "drain", reason, forMs: leftMs, untilOver });
    for (const drain of this.#all) if (drain.standing === standing) drain.late.push(slot);
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

  /** The store's lease was given up, though it may be ours again by now; its entry deleted, or not. */
  released(slot: Slot, deleted: boolean): void {
    this.#gone(slot, deleted ? "released" : "aging");
  }

  #gone(slot: Slot, how: keyof Drain["count"]): void {
    for (const drain of this.#all) {
      const wasOurs = drain.left.get(slot);
      if (!drain.left.delete(slot)) continue;
      if (wasOurs) drain.count[how]++;
      this.#settle(drain);
    }
  }

  #settle(drain: Drain): void {
    if (drain.left.size === 0) this.#finish(drain);
  }

  #finish(drain: Drain): void {
    if (!this.#all.delete(drain)) return;
    drain.cancelTimer();
    const { order, overtaken, standing, count: { released, lost } } = drain;
    const left = [...drain.left.keys()];
    // What is given up already waits for the coordinator alone.
    const aging = drain.count.aging + left.filter(isReleasing).length;
    if (standing !== null) standing.untilMs = this.#ports.clock.bootMs() + order.forMs;
    const remaining = left.length + lost + drain.count.aging;
    drain.done({ released, aging, remaining, overtaken });
    for (const slot of [...left, ...drain.late]) {
      // What was ordered later is not over with what was ordered before.
      if (![...this.#all].some((later) => later.left.has(slot))) {
        this.#stores.dispatch(slot, { type: "drain_over" });
      }
    }
  }
}

/** Whether the store's lease is ours, may become ours, or is being released. */
function isBusy({ store }: Slot): boolean {
  const { phase } = store.lease;
  return phase === "ours" || phase === "releasing" || phase === "acquiring" || store.unfinished > 0;
}

function isOurs(slot: Slot): boolean {
  return slot.store.lease.phase === "ours" || isReleasing(slot);
}

function isReleasing({ store }: Slot): boolean {
  return store.lease.phase === "releasing";
}
