/**
 * What is decided of a guard before its store is looked at, in the contract's order.
 * @module
 */
import type { Refusal } from "../lease/errors.ts";
import { gate1Store } from "../lease/gates.ts";
import * as refuse from "../lease/refusals.ts";
import { storeName } from "../lease/store_code.ts";
import type { Callers } from "./callers.ts";
import type { Newcomers } from "./newcomers.ts";
import type { AgentOptions, Client } from "./types.ts";

/** Whether guards may begin at all, and which. */
export class Admission {
  /** The agent is shutting down. */
  draining = false;
  /** Why nothing may be granted although the coordinator is there; null when nothing is wrong. */
  misconfigured: string | null = null;
  readonly #callers: Callers;
  readonly #newcomers: Newcomers;
  readonly #limits: AgentOptions;

  constructor(callers: Callers, newcomers: Newcomers, limits: AgentOptions) {
    this.#callers = callers;
    this.#newcomers = newcomers;
    this.#limits = limits;
  }

  /** Whether nothing counts as held: leases are being given up, or the setup is contradicted. */
  get mute(): boolean {
    return this.draining || this.misconfigured !== null;
  }

  /** Why no guard of `client` for what it calls a store may begin; null: one may. */
  refusal(client: Client, code: string): Refusal | null {
    const earlier = this.#beforeTheGates(client, storeName(code));
    if (earlier !== null) return earlier;
    const verdict = gate1Store(code);
    return verdict === "pass" ? null : verdict;
  }

  #beforeTheGates(client: Client, store: string): Refusal | null {
    if (this.draining) {
      const alone = this.#limits.standalone !== null;
      return refuse.draining(store, { forMs: Infinity, alone });
    }
    if (this.misconfigured !== null) return refuse.misconfigured(store, this.misconfigured);
    return this.#callers.overLimit(client, store, this.#limits) ??
      this.#newcomers.refusal(client, [store]);
  }
}
