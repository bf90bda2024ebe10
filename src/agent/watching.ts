/**
 * Watching stores: what clients ask for, between the watches and the stores.
 * @module
 */
import type { Refusal } from "../lease/errors.ts";
import type { Timers } from "../ports/clock.ts";
import type { Engine } from "./engine.ts";
import type { Client } from "./types.ts";
import { MAX_WATCHES, type Watches } from "./watches.ts";

/** How soon to look again whether everything due was told, and may be counted on. */
const LOOK_AGAIN_MS = 1;

/** Begins and ends watches. */
export class Watching {
  readonly #engine: Engine;
  readonly #watches: Watches;
  readonly #timers: Timers;

  constructor(engine: Engine, watches: Watches, timers: Timers) {
    this.#engine = engine;
    this.#watches = watches;
    this.#timers = timers;
  }

  /**
   * Tells `client` the present state of the stores (all known, for null) and then each change.
   * `ok` is told the watch's name before that.
   */
  watch(
    client: Client,
    stores: readonly string[] | null,
    answer: { ok(subscription: string): void; fail(refusal: Refusal): void },
  ): void {
    if (this.#watches.of(client) >= MAX_WATCHES) return answer.fail(TOO_MANY);
    const named = stores?.map((code) => this.#engine.slot(code));
    const subscription = this.#watches.add(client, named ?? null);
    answer.ok(subscription);
    for (const slot of named ?? []) this.#engine.dispatch(slot, { type: "tick" });
    this.#watches.tell(subscription, named ?? this.#engine.slots.values());
  }

  /** Ends a watch; false if the client has no such one. */
  unwatch(client: Client, subscription: string): boolean {
    return this.#watches.remove(client, subscription);
  }

  /**
   * Calls `done` once the client's watches were told every change that was due, and every hold lasts for
   * as long as the client counts on it by this answer.
   */
  whenTold(client: Client, done: () => void): void {
    const again = () => this.whenTold(client, done);
    if (client.congested) return client.onDrain(again);
    const told = this.#engine.mayVouch && !this.#watches.isBehind(client);
    return told ? done() : void this.#timers.after(LOOK_AGAIN_MS, again);
  }
}

const TOO_MANY: Refusal = {
  kind: "limit",
  message:
    `This connection has ${MAX_WATCHES} watches already; end one with unwatch, or name all ` +
    "stores in one watch",
};
