/**
 * The step-downs in force: of every store, and of single ones. The newest order counts: one of every
 * store replaces all before it, one of a single store replaces what came before for that store.
 * @module
 */
import type { Clock } from "../ports/clock.ts";
import type { Slot } from "./slot.ts";

/** Why leases are drained, and how long their stores are not acquired again, in milliseconds. */
export interface DrainOrder {
  readonly reason: string;
  /** Infinity for a shutdown: no step-down takes its place. */
  readonly forMs: number;
}

/** An order that concerns every store, those too that become known only then. */
export interface StandingOrder {
  readonly order: DrainOrder;
  /** Boot clock; Infinity while grants may finish: the time begins after that. */
  untilMs: number;
}

/** A step-down as people are told of it. */
export interface StepDown {
  /** Null: every store. */
  readonly store: string | null;
  /** How long it lasts yet, in milliseconds; from when its grants have finished, where they have not. */
  readonly leftMs: number;
  /** Whether grants may finish yet. */
  readonly finishing: boolean;
  /** RFC 3339, to the second; the earliest, while grants may finish. */
  readonly until: string;
}

/** What is in force, by what was ordered. */
export class StepDowns {
  readonly #slots: ReadonlyMap<string, Slot>;
  readonly #clock: Clock;
  #everything: StandingOrder | null = null;
  /** Stores that were given an order of their own since. */
  readonly #own = new Set<string>();

  constructor(slots: ReadonlyMap<string, Slot>, clock: Clock) {
    this.#slots = slots;
    this.#clock = clock;
  }

  /** Every store is drained from now on; null where a shutdown is under way, which goes on. */
  ofEverything(order: DrainOrder): StandingOrder | null {
    if (this.#isShutdown) return null;
    this.#own.clear();
    return this.#everything = { order, untilMs: Infinity };
  }

  /** A store is drained, whatever was ordered before; but a shutdown goes on for it, too. */
  ofOne(store: string): void {
    if (!this.#isShutdown) this.#own.add(store);
  }

  get #isShutdown(): boolean {
    return this.#everything?.order.forMs === Infinity;
  }

  /** What concerns a store that becomes known now; null for nothing. */
  ofNewcomer(store: string): StandingOrder | null {
    return this.#own.has(store) ? null : this.#current();
  }

  #current(): StandingOrder | null {
    if (this.#everything !== null && this.#clock.bootMs() >= this.#everything.untilMs) {
      this.#everything = null;
    }
    return this.#everything;
  }

  /** The step-down of every store, if one is in force. */
  get all(): StepDown | null {
    const standing = this.#current();
    if (standing === null || standing.order.forMs === Infinity) return null;
    return this.#told(null, standing.order.forMs, standing.untilMs);
  }

  /** The single stores whose own step-down is in force. */
  get ones(): StepDown[] {
    const ones = [];
    const standing = this.#current();
    for (const code of this.#own) {
      const one = this.of(code);
      if (one !== null) ones.push(one);
      // Kept as long as it is the exception to another.
      else if (standing === null) this.#own.delete(code);
    }
    return ones;
  }

  /** The stores that a step-down of every store does not concern, because theirs was ended later. */
  get exempt(): string[] {
    return [...this.#own].filter((code) => this.of(code) === null);
  }

  /** What keeps this node from a store, by its own order or that of every store; null for nothing. */
  of(store: string): StepDown | null {
    const blocked = this.#slots.get(store)?.store.drained(this.#clock.bootMs()) ?? null;
    if (blocked === null || blocked.forMs === Infinity) return null;
    return this.#told(store, blocked.forMs, blocked.untilMs);
  }

  #told(store: string | null, forMs: number, untilMs: number): StepDown {
    const finishing = untilMs === Infinity;
    const leftMs = finishing ? forMs : untilMs - this.#clock.bootMs();
    // Upwards: whoever waits until then has waited for long enough.
    const wallMs = Math.ceil((this.#clock.wallMs() + leftMs) / 1_000) * 1_000;
    const until = new Date(wallMs).toISOString().replace(".000Z", "Z");
    return { store, leftMs, finishing, until };
  }
}
