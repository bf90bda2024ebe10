/**
 * The grants of one store: who may write now, who may no longer but has not let go, and who is gone
 * but may have left a process behind that still holds the lock.
 * @module
 */
import type { Guard } from "./gates.ts";
import { PassingMap } from "./passing_map.ts";
import type { LossReason } from "./state.ts";

/** Why a grant is no permission any more. */
export type Loss = LossReason | "store_removed";

/** A permission to write, from the grant until its client lets go. */
export interface Grant {
  readonly guard: Guard;
  /** Why it is no permission any more; null while it is one. A lost grant never revives. */
  lost: Loss | null;
  /** Once lost: the deadline that its client knew at most. */
  deadlineMs: number;
}

/** A `verify` on its way. */
export interface Verify {
  readonly id: number;
  readonly grantId: number;
  answerByMs: number;
  /** The first write sent after its lock was found current; Infinity until then. */
  needSeq: number;
}

/** The grants of one store. */
export class Grants {
  readonly all = new PassingMap<number, Grant>();
  readonly verifies: Verify[] = [];
  /** The deadline that clients were last told to be running out. */
  warnedFor = 0;
  #live = { exclusive: 0, shared: 0 };
  #lingerUntilMs = 0;

  /** How many grants are permissions now. */
  get live(): { readonly exclusive: number; readonly shared: number } {
    return this.#live;
  }

  /** How many grants are permissions now, of both sorts. */
  get liveCount(): number {
    return this.#live.exclusive + this.#live.shared;
  }

  /** Until when what a client left running may write. */
  get lingerUntilMs(): number {
    return this.#lingerUntilMs;
  }

  add(guard: Guard): void {
    this.all.set(guard.id, { guard, lost: null, deadlineMs: Infinity });
    this.#count(guard, 1);
  }

  /** The grant is no permission from now on; its lock stays with it. False if it already was none. */
  lose(grant: Grant, reason: Loss, deadlineMs: number): boolean {
    if (grant.lost !== null) return false;
    grant.lost = reason;
    grant.deadlineMs = deadlineMs;
    this.#count(grant.guard, -1);
    return true;
  }

  /** Forgets a grant that its client let go of. */
  end(id: number): Grant | undefined {
    const grant = this.all.get(id);
    if (grant === undefined) return undefined;
    this.all.delete(id);
    if (grant.lost === null) this.#count(grant.guard, -1);
    return grant;
  }

  /**
   * A client went without letting go although it had been passed the lock: what it left running
   * may write until the deadline it was last told.
   */
  linger(untilMs: number): void {
    this.#lingerUntilMs = Math.max(this.#lingerUntilMs, untilMs);
  }

  /** Whether a clean release now could overtake a write of ours. */
  mayStillWrite(nowMs: number): boolean {
    return this.all.size > 0 || nowMs < this.#lingerUntilMs;
  }

  #count(guard: Guard, by: 1 | -1): void {
    this.#live[guard.shared ? "shared" : "exclusive"] += by;
  }
}
