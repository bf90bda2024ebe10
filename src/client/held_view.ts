/**
 * `held` without a round trip, for schedulers that ask about very many stores at every tick.
 *
 * A `watch` keeps the set of stores that the agent holds, and a beat keeps the set good: a question
 * that the agent answers only when it has told this connection of every change that was due, and when
 * each of its holds lasts for more than 1.25 % of the TTL yet. The view counts on the set for 1 % of
 * the TTL from the *sending* of the newest beat that was answered, and for no moment longer, whatever
 * happens to the agent, this process or the machine in between: the clock runs in suspend, and is
 * compared at each answer. So it is never true past the deadline of a hold, which is later than that. See
 * docs/protocol.md, "Knowing what is held".
 * @module
 */
import { isStoreCode } from "../lease/store_code.ts";
import type { LeaseParams } from "../socket/protocol.ts";
import { type BootClock, bootClock } from "./clock.ts";
import type { Connection } from "./connection.ts";
import { InvalidError } from "./errors.ts";
import { Watcher, type WatchOptions } from "./watcher.ts";

/** How much of the TTL an answered beat is good for; see above. */
const GOOD_FOR = 0.01;
/** Beats within that time, so that one may be late. */
const BEATS = 3;
/** No timer is finer, and no agent is to be asked more often. */
const MIN_BEAT_MS = 5;
/** How soon to ask again for a TTL that the agent does not know yet. */
const TTL_RETRY_MS = 250;
/** After so many stores the clock is read again. */
const CHECK_EVERY = 1_024;

/** A local view of what is held here. */
export class HeldView {
  /**
   * Resolves when the first states are known, and waits while there is no agent to tell them; rejects if
   * they never will be: the agent refuses, or the view is closed before.
   */
  readonly ready: Promise<void>;
  #resolveReady!: () => void;
  #rejectReady!: (error: unknown) => void;
  readonly #watcher: Watcher;
  readonly #clock: BootClock;
  readonly #held = new Set<string>();
  #connection: Connection | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Until when what is in `#held` counts; on the boot clock. */
  #untilMs = -Infinity;
  #goodForMs = 0;

  /**
   * Begins a view; {@linkcode Client.heldView} does.
   *
   * @throws {InvalidError} if a store's code is none.
   */
  constructor(
    options: WatchOptions,
    stores: readonly string[] | null,
    clock = bootClock(),
  ) {
    const wrong = stores?.find((store) => !isStoreCode(store));
    if (wrong !== undefined) {
      throw new InvalidError(`Cannot watch ${JSON.stringify(wrong)}: it is no store code`);
    }
    this.#clock = clock;
    this.ready = new Promise((resolve, reject) => {
      this.#resolveReady = resolve;
      this.#rejectReady = reject;
    });
    this.ready.catch(() => {});
    this.#watcher = new Watcher(options, stores, {
      lease: (state) => this.#note(state),
      up: (connection) => void this.#begin(connection),
      down: () => this.#forget(),
      failed: (error) => {
        this.#forget();
        this.#rejectReady(error);
      },
      closed: () => this.#end(),
    });
  }

  /** Whether anything is known now: false while the agent is silent. */
  get fresh(): boolean {
    return this.#clock.nowMs() < this.#untilMs;
  }

  /** Whether this node may write to the store now, as far as known: false when in doubt. */
  held(store: string): boolean {
    return this.#held.has(store) && this.fresh;
  }

  /** Those of the stores that this node may write to now: for ticks over very many of them. */
  heldOf(stores: readonly string[]): string[] {
    const found: string[] = [];
    for (let i = 0; i < stores.length; i++) {
      if (i % CHECK_EVERY === 0 && !this.fresh) return [];
      if (this.#held.has(stores[i])) found.push(stores[i]);
    }
    return this.fresh ? found : [];
  }

  /** Ends the view: nothing is held any more. {@linkcode Client.close} does so, too. */
  async close(): Promise<void> {
    this.#end();
    await this.#watcher.stop();
  }

  /** Ends the view: for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #end(): void {
    this.#forget();
    this.#rejectReady(new InvalidError("The view was closed before it knew what is held"));
  }

  #note({ store, held }: LeaseParams): void {
    if (held) this.#held.add(store);
    else this.#held.delete(store);
  }

  #forget(): void {
    this.#untilMs = -Infinity;
    this.#held.clear();
    this.#connection = null;
    clearTimeout(this.#timer);
  }

  async #begin(connection: Connection): Promise<void> {
    this.#connection = connection;
    try {
      const { ttl_ms } = await connection.call("status", {});
      if (this.#connection !== connection) return;
      if (ttl_ms === null) {
        this.#timer = setTimeout(() => void this.#begin(connection), TTL_RETRY_MS);
        return;
      }
      this.#goodForMs = ttl_ms * GOOD_FOR - this.#clock.slackMs;
      await this.#beat(connection);
    } catch {
      // The connection is gone; the watcher says so.
    }
  }

  async #beat(connection: Connection): Promise<void> {
    const sentMs = this.#clock.nowMs();
    await connection.call("held", { stores: [] });
    if (this.#connection !== connection) return;
    this.#untilMs = sentMs + this.#goodForMs;
    this.#resolveReady();
    const nextMs = Math.max(
      MIN_BEAT_MS,
      sentMs + this.#goodForMs / BEATS - this.#clock.nowMs(),
    );
    this.#timer = setTimeout(() => this.#beat(connection).catch(() => {}), nextMs);
  }
}
