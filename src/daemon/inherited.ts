/**
 * The grants that earlier incarnations left in the journal are over by time, whatever becomes of their
 * clients.
 * @module
 */
import type { Clock, Timers } from "../ports/clock.ts";

/** The journal, as far as it is about those. */
export interface InheritedGrants {
  /** The longest time that one of them may have been told, ms; 0 where none is on record. */
  readonly inheritedMs: number;
  /** Ends all of them. */
  endInherited(): void;
}

/** What time is told by. */
export interface InheritedPorts {
  readonly clock: Clock;
  readonly timers: Timers;
}

/**
 * Ends them once: else a client that lives for long would have its store taken up anew, and from other
 * hosts, at every start of the agent.
 *
 * A deadline that an agent told is no later than its death and the TTL that it went by, and it died
 * before we started. That TTL is after ours was known, not after the start: so a store that is acquired
 * as soon as it can be still counts their clients, and owes the grace if they live.
 */
export class Inherited {
  readonly #grants: InheritedGrants;
  readonly #ports: InheritedPorts;
  #isCounting = false;
  #cancel = () => {};

  constructor(grants: InheritedGrants, ports: InheritedPorts) {
    this.#grants = grants;
    this.#ports = ports;
  }

  /** The TTL is known; what comes later counts no more. */
  onTtl(ttlMs: number): void {
    if (this.#isCounting) return;
    this.#isCounting = true;
    this.#endAt(this.#ports.clock.bootMs() + Math.max(ttlMs, this.#grants.inheritedMs));
  }

  /** Ends nothing any more; the agent ends. */
  close(): void {
    this.#cancel();
  }

  /** Timers can be early, and stand still in suspend: compared at use. */
  #endAt(atMs: number): void {
    const leftMs = atMs - this.#ports.clock.bootMs();
    if (leftMs <= 0) return this.#grants.endInherited();
    this.#cancel = this.#ports.timers.after(leftMs, () => this.#endAt(atMs));
  }
}
