/**
 * The locks of one store: which guards and grants stand behind which locked file. An exclusive
 * guard has its own; shared guards of one tenure stand behind one, since a second exclusive flock
 * on another description would wait for the first.
 * @module
 */
import type { Guard } from "./gates.ts";
import { PassingMap } from "./passing_map.ts";
import type { OnDisk, StoreEffect } from "./store_events.ts";

/** A lock that is waited for or held. */
export interface Lock {
  readonly id: number;
  readonly epoch: number;
  readonly shared: boolean;
  /** Until when it is waited for. */
  readonly untilMs: number;
  /** The guards and grants behind it. */
  readonly users: Set<number>;
  state: "waiting" | "locked";
  /** What the file says, as read at locking or written since. */
  onDisk: OnDisk | null;
  /** Its path no longer names the file: nobody may join any more. */
  retired: boolean;
}

/** The locks of one store. */
export class Locks {
  #locks = new PassingMap<number, Lock>();
  #lastId: number;

  /** @param lastId the last number that a lock of this store was given before; 0 for none */
  constructor(lastId = 0) {
    this.#lastId = lastId;
  }

  /** How many are waited for or held. */
  get size(): number {
    return this.#locks.size;
  }

  get lastId(): number {
    return this.#lastId;
  }

  get(id: number): Lock | undefined {
    return this.#locks.get(id);
  }

  /** Puts a guard behind a lock and says what has to be done for it; null: wait with the others. */
  enter(guard: Guard): StoreEffect | null {
    const open = guard.shared ? this.#open(guard.epoch) : undefined;
    if (open !== undefined) {
      open.users.add(guard.id);
      guard.lockId = open.id;
      // Joining a held lock: it must still be the store's lock.
      return open.state === "locked" ? { type: "check_lock", lockId: open.id } : null;
    }
    const id = ++this.#lastId;
    guard.lockId = id;
    this.#locks.set(id, {
      id,
      epoch: guard.epoch,
      shared: guard.shared,
      untilMs: guard.untilMs,
      users: new Set([guard.id]),
      state: "waiting",
      onDisk: null,
      retired: false,
    });
    return { type: "lock", lockId: id, untilMs: guard.untilMs };
  }

  /** Takes a guard or grant from its lock; the last one unlocks it. */
  leave(guard: Guard): StoreEffect | null {
    const lock = this.#locks.get(guard.lockId);
    if (lock === undefined || !lock.users.delete(guard.id) || lock.users.size > 0) return null;
    this.#locks.delete(lock.id);
    return { type: "unlock", lockId: lock.id };
  }

  /** The lock could not be had. */
  forget(id: number): void {
    this.#locks.delete(id);
  }

  /** Nobody may join it any more. */
  retire(id: number): void {
    const lock = this.#locks.get(id);
    if (lock !== undefined) lock.retired = true;
  }

  #open(epoch: number): Lock | undefined {
    for (const lock of this.#locks.values()) {
      if (lock.shared && lock.epoch === epoch && !lock.retired) return lock;
    }
    return undefined;
  }
}
