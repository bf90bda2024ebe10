/**
 * How many stores are what. Kept up with each event, because counting hundreds of thousands of
 * stores whenever somebody asks for the status would hold every guard up.
 * @module
 */
import type { LeaseContext } from "../lease/lease_context.ts";
import { PassingMap } from "../lease/passing_map.ts";
import type { Standing } from "../lease/store_view.ts";
import { renewalDueMs } from "../lease/timing.ts";
import { Nearest } from "./nearest.ts";
import type { Slot } from "./slot.ts";
import type { Counts } from "./types.ts";

type Stores = Pick<Counts, "held" | "waiting" | "foreign">;

/** The stores by their standing. */
export class Tally {
  readonly nearest = new Nearest();
  readonly #counts: Record<Standing, number> = { held: 0, waiting: 0, foreign: 0, none: 0 };
  /** Stores whose renewal is due and not acknowledged. */
  readonly #late = new PassingMap<Slot, null>();

  /** An event of the store was handled. */
  note(slot: Slot, nowMs: number, context: LeaseContext): void {
    this.nearest.note(slot, context);
    const standing = slot.store.standing(nowMs, context);
    if (standing !== slot.standing) {
      this.#counts[slot.standing]--;
      this.#counts[standing]++;
      slot.standing = standing;
    }
    const late = overdueMs(slot, nowMs, context) >= 0;
    if (late === slot.late) return;
    slot.late = late;
    if (late) this.#late.set(slot, null);
    else this.#late.delete(slot);
  }

  /** The store is not known any more. */
  forget(slot: Slot): void {
    this.#counts[slot.standing]--;
    this.#counts.none++;
    slot.standing = "none";
    this.#late.delete(slot);
  }

  /** The counts after the last events: true as long as no store has to be ticked. */
  get counts(): Stores {
    const { held, waiting, foreign } = this.#counts;
    return { held, waiting, foreign };
  }

  /** The counts now, of all stores one by one. */
  static count(slots: Iterable<Slot>, nowMs: number, context: LeaseContext): Stores {
    const counts = { held: 0, waiting: 0, foreign: 0, none: 0 };
    for (const { store } of slots) counts[store.standing(nowMs, context)]++;
    const { held, waiting, foreign } = counts;
    return { held, waiting, foreign };
  }

  /** How long the renewal that has waited longest is due, in milliseconds, among those noted. */
  overdueMs(nowMs: number, context: LeaseContext): number {
    return Tally.overdueMs(this.#late.keys(), nowMs, context);
  }

  /** The same among these stores. */
  static overdueMs(slots: Iterable<Slot>, nowMs: number, context: LeaseContext): number {
    let longestMs = 0;
    for (const slot of slots) longestMs = Math.max(longestMs, overdueMs(slot, nowMs, context));
    return longestMs;
  }
}

/** How long ago the store's renewal was due that is not acknowledged; negative: it is yet to come. */
function overdueMs({ store: { lease } }: Slot, nowMs: number, { timing }: LeaseContext): number {
  if (lease.phase !== "ours") return -Infinity;
  return nowMs - renewalDueMs(lease.provenAtMs, lease, timing);
}
