/**
 * A store as others see it, from memory.
 * @module
 */
import type { Holder } from "./errors.ts";
import { knownHolder } from "./foreign.ts";
import { isValid } from "./keep.ts";
import type { LeaseContext } from "./lease_context.ts";
import { isHeld, type StoreState } from "./store_state.ts";

/** A store's state as others see it. */
export interface StoreView {
  readonly state: "self" | "other" | "free";
  /** True only while the hold is valid, recorded, undoubted and past its grace. */
  readonly held: boolean;
  /** Whoever holds it, if another; null otherwise. */
  readonly holder: Holder | null;
  /** Our epoch while ours. */
  readonly epoch: number | null;
  readonly acquiredAtMs: number | null;
}

/** What a store counts as: ours is held, or waits for record or grace. */
export type Standing = "held" | "waiting" | "foreign" | "none";

/** The state as others see it. */
export function viewOf(store: StoreState, nowMs: number, context: LeaseContext): StoreView {
  const { lease } = store;
  const none = { held: false, holder: null, epoch: null, acquiredAtMs: null };
  if (lease.phase === "ours" && isValid(lease, nowMs, context)) {
    const { epoch, acquiredAtMs } = lease;
    const held = isHeld(store, nowMs, context);
    return { state: "self", held, holder: null, epoch, acquiredAtMs };
  }
  const holder = knownHolder(lease);
  return holder === null ? { ...none, state: "free" } : { ...none, state: "other", holder };
}

/** What the store counts as. */
export function standingOf(store: StoreState, nowMs: number, context: LeaseContext): Standing {
  const { lease } = store;
  if (lease.phase === "ours" && isValid(lease, nowMs, context)) {
    return isHeld(store, nowMs, context) ? "held" : "waiting";
  }
  return knownHolder(lease) === null ? "none" : "foreign";
}
