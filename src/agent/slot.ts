/**
 * A store with what belongs to it at the edge. A host may have hundreds of thousands of these: what
 * few of them need at a time is not there until it is needed.
 * @module
 */
import type { Store } from "../lease/store.ts";
import type { Standing } from "../lease/store_view.ts";
import type { TenureRecord } from "../lease/tenure.ts";
import type { TenureRead } from "../ports/coordinator.ts";
import type { HeldLock } from "../ports/lock_file.ts";

/** A lock of a store: being waited for, or held. */
export type SlotLock = { cancel: () => void } | HeldLock;

/** A store in the agent. */
export interface Slot {
  readonly store: Store;
  /** Null while there are none. */
  locks: Map<number, SlotLock> | null;
  /** When our tenure began, on the wall clock, as its record says it; null while there is none. */
  sinceMs: number | null;
  /** The user who first asked about it; null: nobody did, it was given at start. */
  readonly uid: number | null;
  /** When its next tick is due; see {@linkcode Wakes}. */
  wakeMs: number;
  /** What it was counted as after its last event. */
  standing: Standing;
  /** Whether its renewal was due when its last event was handled. */
  late: boolean;
  /** The newest tenure record that was heard of while the store is not ours: it need not be read. */
  heard: TenureRead | null;
}

/**
 * Keeps a tenure record that was heard of, for when the store has become ours. It is not kept of a
 * store that another holds, unless it ended a tenure here: a host may follow very many of those.
 */
export function hear(slot: Slot, record: TenureRecord, revision: number): void {
  const { phase } = slot.store.lease;
  const soon = phase === "idle" || phase === "acquiring" || record.released_at !== undefined;
  if (!soon || phase === "ours") slot.heard = null;
  else if (revision > (slot.heard?.revision ?? 0)) slot.heard = { revision, record };
}

/** A store that has just become known. */
export function newSlot(store: Store, uid: number | null): Slot {
  return {
    store,
    uid,
    locks: null,
    sinceMs: null,
    wakeMs: Infinity,
    standing: "none",
    late: false,
    heard: null,
  };
}

/** What the health of the whole agent depends on in one store. */
export interface Bearing {
  /** Whether it is not held without its tenure being on record, as it is before each grant. */
  readonly recorded: boolean;
  /** Who else holds it, in words that tell agents of one name apart; null where nobody does. */
  readonly rival: string | null;
}

/** What a store means for the agent's health. */
export function bearingOf({ store: { lease } }: Slot): Bearing {
  const recorded = lease.phase !== "ours" || lease.record.at === "done";
  if (lease.phase !== "foreign") return { recorded, rival: null };
  const { holder, incarnation } = lease;
  return { recorded, rival: holder.address ?? (incarnation && `incarnation ${incarnation}`) };
}
