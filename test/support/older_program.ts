/**
 * An older program that shares the fleet: it does what the layout of the records says and nothing
 * else. `Create` to acquire, `Update` with the revision every third of the TTL, `Get` to see who
 * holds; no headers, no tenure records. Having found somebody else's entry, it waits a TTL before it
 * writes; it believes in its hold for a TTL from when the last write that went through was sent.
 * @module
 */
import { jetstream, JetStreamApiError, type JetStreamClient } from "@nats-io/jetstream";
import { type KV, Kvm } from "@nats-io/kv";
import type { NatsConnection } from "@nats-io/transport-node";
import { bootTimeMs } from "../../src/sys/boot_time.ts";

/** How often it tries to create an entry that is not its own, and looks at those that are. */
const TRY_MS = 100;
/** How often it reads whose an entry is. */
const LOOK_MS = 200;

/** How long it waits for an answer. */
const TIMEOUT_MS = 1_500;

/** A store's entry is its own, as far as it knows. */
export interface Hold {
  /** The revision at which it was created. */
  readonly epoch: number;
  readonly revision: number;
  /** When its last write that went through was sent. CLOCK_BOOTTIME, as all times here. */
  readonly renewedMs: number;
  /** It may write from then on. */
  readonly fromMs: number;
}

/** What it tells. */
export interface OlderEvents {
  acquired?(store: string, hold: Hold): void;
  /** A create had no answer: the entry may be its own, and it will not know. */
  unknown?(store: string): void;
  granted?(store: string): void;
  lost?(store: string): void;
  foreign?(store: string, node: string): void;
  released?(store: string): void;
}

/** What it is told. */
export interface OlderOptions {
  readonly node: string;
  readonly ttlMs: number;
  /** Default: 100. */
  readonly tryMs?: number;
}

/** One such program on one node. */
export class OlderProgram {
  readonly #kv: KV;
  readonly #node: string;
  readonly #ttlMs: number;
  readonly #tell: OlderEvents;
  readonly #tryMs: number;
  readonly #lookedMs = new Map<string, number>();
  readonly #holds = new Map<string, Hold>();
  readonly #granted = new Set<string>();
  readonly #seenForeign = new Map<string, string>();
  readonly #wanted = new Set<string>();

  /** Opens a bucket that an agent made. */
  static async open(
    nc: NatsConnection,
    options: OlderOptions & { readonly bucket: string },
    tell: OlderEvents,
  ): Promise<OlderProgram> {
    const js: JetStreamClient = jetstream(nc, { timeout: TIMEOUT_MS });
    const kv = await new Kvm(js).open(options.bucket, { bindOnly: true });
    return new OlderProgram(kv, options, tell);
  }

  private constructor(
    kv: KV,
    { node, ttlMs, tryMs = TRY_MS }: OlderOptions,
    tell: OlderEvents,
  ) {
    this.#tryMs = tryMs;
    this.#kv = kv;
    this.#node = node;
    this.#ttlMs = ttlMs;
    this.#tell = tell;
  }

  want(store: string): void {
    this.#wanted.add(store);
  }

  /** Its hold, if it may write now; null otherwise. */
  holdOf(store: string): (Hold & { readonly deadlineMs: number }) | null {
    const hold = this.#holds.get(store);
    const nowMs = bootTimeMs();
    if (hold === undefined || nowMs < hold.fromMs) return null;
    const deadlineMs = hold.renewedMs + this.#ttlMs;
    return nowMs < deadlineMs ? { ...hold, deadlineMs } : null;
  }

  /** Wants the store no longer, and deletes its entry if it is its own. */
  async release(store: string): Promise<void> {
    const hold = this.#holds.get(store);
    this.#wanted.delete(store);
    this.#forget(store);
    if (hold !== undefined) await this.#kv.delete(store, { previousSeq: hold.revision });
    this.#tell.released?.(store);
  }

  async run(): Promise<never> {
    while (true) {
      for (const store of this.#wanted) {
        const hold = this.#holds.get(store);
        if (hold === undefined) await this.#acquire(store);
        else await this.#keep(store, hold);
      }
      await Bun.sleep(this.#tryMs);
    }
  }

  async #acquire(store: string): Promise<void> {
    const sentMs = bootTimeMs();
    let revision: number;
    try {
      revision = await this.#kv.create(store, this.#node);
    } catch (error) {
      if (!(error instanceof JetStreamApiError)) this.#tell.unknown?.(store);
      await this.#look(store);
      return;
    }
    const graceMs = this.#seenForeign.delete(store) ? this.#ttlMs : 0;
    const fromMs = bootTimeMs() + graceMs;
    const hold: Hold = { epoch: revision, revision, renewedMs: sentMs, fromMs };
    this.#holds.set(store, hold);
    this.#tell.acquired?.(store, hold);
  }

  async #look(store: string): Promise<void> {
    const nowMs = bootTimeMs();
    if (nowMs < (this.#lookedMs.get(store) ?? 0) + LOOK_MS) return;
    this.#lookedMs.set(store, nowMs);
    const entry = await this.#kv.get(store).catch(() => null);
    const holder = entry?.operation === "PUT" ? entry.string() : null;
    if (holder === null || this.#seenForeign.get(store) === holder) return;
    this.#seenForeign.set(store, holder);
    this.#tell.foreign?.(store, holder);
  }

  async #keep(store: string, hold: Hold): Promise<void> {
    const sentMs = bootTimeMs();
    if (sentMs >= hold.renewedMs + this.#ttlMs) return this.#lose(store);
    if (!this.#granted.has(store) && sentMs >= hold.fromMs) {
      this.#granted.add(store);
      this.#tell.granted?.(store);
    }
    if (sentMs < hold.renewedMs + this.#ttlMs / 3) return;
    try {
      const revision = await this.#kv.update(store, this.#node, hold.revision);
      // It may have been released meanwhile.
      if (this.#holds.get(store) !== hold) return;
      this.#holds.set(store, { ...hold, revision, renewedMs: sentMs });
    } catch (error) {
      // Without an answer it goes on to its deadline; with one, somebody else was there.
      if (error instanceof JetStreamApiError && this.#holds.get(store) === hold) this.#lose(store);
    }
  }

  #lose(store: string): void {
    this.#forget(store);
    this.#tell.lost?.(store);
  }

  #forget(store: string): void {
    this.#holds.delete(store);
    this.#granted.delete(store);
  }
}
