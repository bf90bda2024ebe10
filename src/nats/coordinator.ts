/**
 * The coordinator on NATS JetStream KV. docs/coordinator.md tells how it uses NATS, and why so.
 * @module
 */
import { isStoreCode } from "../lease/store_code.ts";
import type { TenureRecord } from "../lease/tenure.ts";
import type { Coordinator, EntryRead, Outcome, TenureRead } from "../ports/coordinator.ts";
import { readHistory } from "./history.ts";
import { Keeper } from "./keeper.ts";
import type { Drift, NatsListener, NatsStats, Problem } from "./listener.ts";
import type { NatsOptions } from "./options.ts";
import { formatTenure, TTL_HEADER } from "./records.ts";
import { refuse, type Request, type Requests } from "./requests.ts";
import type { Finding } from "./setup_error.ts";
import { tenuresOf } from "./stream_config.ts";
import {
  decodeEntry,
  decodeTenure,
  decodeWrite,
  HeaderTemplate,
  keyPrefix,
  readSubject,
} from "./wire.ts";

const DEFAULT_BUCKET = "leases";

/** A {@linkcode Coordinator} on NATS. */
export class NatsCoordinator implements Coordinator {
  readonly #keeper: Keeper;
  readonly #entries: string;
  readonly #tenures: string;
  readonly #entryReads: string;
  readonly #tenureReads: string;
  readonly #node: string;
  readonly #entryHeaders: HeaderTemplate;
  readonly #deleteHeaders: HeaderTemplate;
  #tenureHeaders = new HeaderTemplate();
  /** The TTL that these headers tell. */
  #toldTtlMs = 0;

  /**
   * Starts to connect in the background, and returns at once: what becomes of it the listener is
   * told.
   *
   * @throws {SetupError} for options that could never work
   */
  static start(options: NatsOptions, listener: NatsListener): NatsCoordinator {
    return new NatsCoordinator(options, listener);
  }

  private constructor(options: NatsOptions, listener: NatsListener) {
    const { node, incarnation, address, bucket = DEFAULT_BUCKET } = options;
    this.#keeper = new Keeper({ ...options, bucket }, listener);
    this.#entries = keyPrefix(bucket);
    this.#tenures = keyPrefix(tenuresOf(bucket));
    this.#entryReads = readSubject(bucket);
    this.#tenureReads = readSubject(tenuresOf(bucket));
    this.#node = node;
    this.#entryHeaders = new HeaderTemplate({
      "Zit-Incarnation": incarnation,
      ...(address === null ? {} : { "Zit-Address": address }),
    });
    this.#deleteHeaders = new HeaderTemplate({ "KV-Operation": "DEL" });
  }

  /** Whether there is a connection and the buckets on it were inspected. */
  get connected(): boolean {
    return this.#keeper.session?.link.isUp ?? false;
  }

  /** The TTL of leases in milliseconds; null until it was first read from the bucket. */
  get ttlMs(): number | null {
    return this.#keeper.ttlMs;
  }

  /** What a person should know about the server and the buckets, for `--check`. */
  get warnings(): readonly Finding[] {
    return this.#keeper.warnings;
  }

  /** What is wrong with the coordinator now; null where nothing is. */
  get problem(): Problem | null {
    return this.#keeper.problem;
  }

  /** How the buckets contradict the agent by now; null where they do not. */
  get drift(): Drift | null {
    return this.#keeper.drift;
  }

  /** The connection as it is now. */
  stats(): NatsStats {
    return this.#keeper.stats();
  }

  /**
   * Reads the credential files again. If they changed, a connection is made with the new ones, and
   * only then the old one is left (what is in flight on it becomes `unknown`).
   *
   * @throws {Error} if they cannot be used: the old connection goes on, with a warning
   */
  reload(): Promise<void> {
    return this.#keeper.reload();
  }

  /** Ends the connection. All in flight become `unknown`; resolves when nothing runs any more. */
  stop(): Promise<void> {
    return this.#keeper.stop();
  }

  putEntry(store: string, expect: number, done: (outcome: Outcome<number>) => void): void {
    this.#send(store, {
      subject: this.#entries + store,
      payload: this.#node,
      headers: this.#entryHeaders.expecting(expect),
      decode: decodeWrite,
      done,
    });
  }

  deleteEntry(store: string, expect: number, done: (outcome: Outcome<number>) => void): void {
    this.#send(store, {
      subject: this.#entries + store,
      payload: "",
      headers: this.#deleteHeaders.expecting(expect),
      decode: decodeWrite,
      done,
    });
  }

  readEntry(store: string, done: (outcome: Outcome<EntryRead>) => void): void {
    this.#send(store, {
      subject: this.#entryReads,
      payload: `{"last_by_subj":"${this.#entries}${store}"}`,
      decode: decodeEntry,
      done,
    });
  }

  readTenure(store: string, done: (outcome: Outcome<TenureRead>) => void): void {
    this.#send(store, {
      subject: this.#tenureReads,
      payload: `{"last_by_subj":"${this.#tenures}${store}"}`,
      decode: decodeTenure,
      done,
    });
  }

  putTenure(
    store: string,
    expect: number,
    record: TenureRecord,
    done: (outcome: Outcome<number>) => void,
  ): void {
    this.#send(store, {
      subject: this.#tenures + store,
      payload: formatTenure(record),
      headers: this.#headersOfTenure(record).expecting(expect),
      decode: decodeWrite,
      done,
    });
  }

  /** The TTL that we go by stands beside the record: whoever displaces us may go by a shorter one. */
  #headersOfTenure({ ttlMs = 0 }: TenureRecord): HeaderTemplate {
    const toldMs = Math.max(ttlMs, this.#keeper.ttlMs ?? 0);
    if (toldMs !== this.#toldTtlMs) {
      this.#toldTtlMs = toldMs;
      this.#tenureHeaders = new HeaderTemplate({ [TTL_HEADER]: `${toldMs}` });
    }
    return this.#tenureHeaders;
  }

  readHistory(store: string, done: (outcome: Outcome<TenureRecord[]>) => void): void {
    const requests = this.#requestsFor(store, done);
    if (requests === null) return;
    readHistory(requests, { readSubject: this.#tenureReads, key: this.#tenures + store, done });
  }

  #send<T>(store: string, request: Request<T>): void {
    this.#requestsFor(store, request.done)?.send(request);
  }

  /** Refuses a code that could name other keys than its own (a wildcard), and where there is no connection. */
  #requestsFor(store: string, done: (outcome: Outcome<never>) => void): Requests | null {
    const requests = this.#keeper.session?.requests ?? null;
    if (!isStoreCode(store)) {
      refuse(done, `${JSON.stringify(store)} is no store code`);
      return null;
    }
    if (requests === null) {
      refuse(done, this.#keeper.problem?.message ?? "not connected to the coordinator");
    }
    return requests;
  }
}
