/**
 * The deadline that comes first of all holds: whether there is one so near that nobody may be told to count
 * on what is held.
 *
 * It is never later than the real one, and looked for among all stores only now and then: events can
 * only bring it nearer by what they are noted with, and what renewals take away is found at the next look,
 * of which there are the more the nearer it seems.
 * @module
 */
import type { LeaseContext } from "../lease/lease_context.ts";
import { deadlineMs } from "../lease/timing.ts";
import type { Slot } from "./slot.ts";

/**
 * The part of the TTL that a hold must last yet: a view of a client counts on what it was told for 1 % (see
 * docs/protocol.md, "Knowing what is held"), and the rest is for a clock of its own that is coarser.
 */
const NEAR_OF_TTL = 1 / 80;

/** The least time between two looks, as a part of the TTL: some milliseconds' work for 100,000 stores. */
const LOOK_EVERY_OF_TTL = 1 / 400;

/** The nearest deadline. */
export class Nearest {
  #atMs = -Infinity;
  #lookAtMs = -Infinity;

  /** An event of the store was handled. */
  note(slot: Slot, context: LeaseContext): void {
    this.#atMs = Math.min(this.#atMs, deadlineOf(slot, context));
  }

  /** Whether every hold lasts for long enough to be told of. */
  isFar(slots: Iterable<Slot>, nowMs: number, context: LeaseContext): boolean {
    const { ttlMs } = context.timing;
    const nearMs = ttlMs * NEAR_OF_TTL;
    if (nowMs >= this.#lookAtMs) {
      // Without any hold, as if one had just begun: so soon there can be none that is near.
      this.#atMs = nowMs + ttlMs;
      for (const slot of slots) this.note(slot, context);
      const pauseMs = Math.max((this.#atMs - nowMs - nearMs) / 2, ttlMs * LOOK_EVERY_OF_TTL);
      this.#lookAtMs = nowMs + pauseMs;
    }
    return this.#atMs - nowMs > nearMs;
  }
}

/** When the hold on a store ends; Infinity if there is none. */
function deadlineOf({ store: { lease } }: Slot, { timing }: LeaseContext): number {
  return lease.phase === "ours" ? deadlineMs(lease.provenAtMs, timing) : Infinity;
}
