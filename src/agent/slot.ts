/**
 * A store with what belongs to it at the edge: its locks.
 * @module
 */
import type { Store } from "../lease/store.ts";
import type { HeldLock } from "../ports/lock_file.ts";

/** A lock of a store: being waited for, or held. */
export type SlotLock = { cancel: () => void } | HeldLock;

/** A store in the agent. */
export interface Slot {
  /** When our tenure began, RFC 3339: as its record says it. */
  since: string | null;
  readonly store: Store;
  readonly locks: Map<number, SlotLock>;
  /** A lock given up by the event that is being handled, for whoever takes it by the same event. */
  spare: HeldLock | null;
  /** How often in a row the lock went from one grant to the next without being free. */
  handOvers: number;
}
