/**
 * Follows the tenures bucket and passes each record on, as a hint. The lease bucket is not followed:
 * a watch of it would echo every renewal of every node, and tell nothing of an expired entry.
 * @module
 */
import { type ConsumerMessages, DeliverPolicy, jetstream, type JsMsg } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { isStoreCode } from "../lease/store_code.ts";
import type { TenureRecord } from "../lease/tenure.ts";
import { parseTenure, parseTtl, TTL_HEADER } from "./records.ts";
import { keyPrefix, streamOf } from "./wire.ts";

/** Where a watch got to, so that the next connection goes on there. */
export interface WatchPosition {
  /** When the stream was made. */
  readonly created: string;
  /** The sequence seen last. */
  readonly seq: number;
}

/** A position that moves on; most sequences are passed over unread. */
class Moving implements WatchPosition {
  readonly created: string;
  readonly #startSeq: number;
  #last: JsMsg | null = null;

  constructor(created: string, startSeq: number) {
    this.created = created;
    this.#startSeq = startSeq;
  }

  get seq(): number {
    return this.#last?.seq ?? this.#startSeq;
  }

  saw(message: JsMsg): void {
    this.#last = message;
  }
}

/** What is followed, for whom. */
export interface WatchOptions {
  /** The tenures bucket. */
  readonly bucket: string;
  /** Ours: what we wrote ourselves is not told. */
  readonly incarnation: string;
  onTenure(store: string, record: TenureRecord, revision: number): void;
}

/** Follows one tenures bucket on one connection. */
export class TenureWatch {
  readonly #nc: NatsConnection;
  readonly #stream: string;
  readonly #prefix: string;
  readonly #own: Uint8Array;
  readonly #onTenure: WatchOptions["onTenure"];
  #messages: ConsumerMessages | null = null;
  #created: string | null = null;
  #ended = false;

  constructor(nc: NatsConnection, options: WatchOptions) {
    this.#nc = nc;
    this.#stream = streamOf(options.bucket);
    this.#prefix = keyPrefix(options.bucket);
    this.#own = new TextEncoder().encode(`"incarnation":"${options.incarnation}"`);
    this.#onTenure = options.onTenure;
  }

  /**
   * Sees to it that the watch runs on the stream made at `created`. Goes on after `position` if that
   * is of the same stream; else each store's newest record comes first. Rejects where the server
   * does not allow or manage it; then it may be called again.
   */
  async ensure(created: string, position: WatchPosition | null): Promise<WatchPosition> {
    if (this.#messages !== null && this.#created === created && position !== null) return position;
    await this.#messages?.close();
    const start = new Moving(created, position?.created === created ? position.seq : 0);
    const consumer = await jetstream(this.#nc).consumers.getPushConsumer(this.#stream, {
      filter_subjects: this.#prefix + ">",
      ...(start.seq > 0
        ? { opt_start_seq: start.seq + 1 }
        : { deliver_policy: DeliverPolicy.LastPerSubject }),
    });
    const messages = await consumer.consume({ callback: (message) => this.#see(message, start) });
    this.#messages = messages;
    this.#created = created;
    messages.closed().then(() => {
      if (this.#messages === messages) this.#messages = null;
    });
    return start;
  }

  /** Passes nothing more on. The connection's end ends the consumer. */
  end(): void {
    this.#ended = true;
  }

  #see(message: JsMsg, position: Moving): void {
    if (this.#ended) return;
    position.saw(message);
    // A host that acquires very many stores hears of itself as often: told apart without parsing.
    if (includes(message.data, this.#own)) return;
    const store = message.subject.slice(this.#prefix.length);
    // Anybody can write any key: follow only what can be a store.
    if (!isStoreCode(store)) return;
    const record = parseTenure(message.data);
    if (record === null) return;
    const ttlMs = parseTtl(message.headers?.get(TTL_HEADER));
    this.#onTenure(store, { ...record, ttlMs }, message.seq);
  }
}

function includes(data: Uint8Array, part: Uint8Array): boolean {
  return Buffer.from(data.buffer, data.byteOffset, data.length).includes(part);
}
