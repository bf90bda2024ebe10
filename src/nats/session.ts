/**
 * One connection put to use: its inspections, its requests and its watch.
 * @module
 */
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import type { TenureRecord } from "../lease/tenure.ts";
import { type BucketsOptions, inspectBuckets, type Inspection } from "./buckets.ts";
import { DELETED, type Link, STREAM_ADVISORIES } from "./link.ts";
import type { Membership } from "./membership.ts";
import type { NatsOptions } from "./options.ts";
import { Requests } from "./requests.ts";
import type { Finding } from "./setup_error.ts";
import { tenuresOf } from "./stream_config.ts";
import { askSyncing } from "./syncing.ts";
import { startsAnywhere } from "./versions.ts";
import { TenureWatch, type WatchPosition } from "./watch.ts";
import { streamOf } from "./wire.ts";

/** How long an inspection's request may take, in milliseconds: longer than any that is not lost. */
const LOOK_TIMEOUT_MS = 2_000;
/** …and the making of a replicated stream, which elects a leader. */
const MAKE_TIMEOUT_MS = 5_000;

/** Requests are given up on after this time at the latest, in milliseconds. */
const MAX_TIMEOUT_MS = 1_500;
/** …and within this part of TTL/3, so that a lost renewal can be sent again before the next is due. */
const TIMEOUT_PER_RENEWAL = 0.9;

/** How often the round trip is measured, in milliseconds. */
const RTT_INTERVAL_MS = 10_000;

/** How long a request's answer is awaited where leases have this TTL; both in milliseconds. */
function requestTimeoutMs(ttlMs: number): number {
  return Math.min(MAX_TIMEOUT_MS, Math.floor((ttlMs / 3) * TIMEOUT_PER_RENEWAL));
}

/** What a session reports. */
export interface SessionHooks {
  onTenure(store: string, record: TenureRecord, revision: number): void;
  /** The buckets may not be what they were. */
  onTrouble(): void;
  /** A bucket was deleted; somebody may have made it again by now. */
  onDeleted(): void;
  /** A request on the subject was answered; `decided`: not with an error. */
  onAnswer(subject: string, decided: boolean): void;
}

/** What a session needs to know. */
export type SessionOptions = NatsOptions & {
  readonly bucket: string;
  readonly membership: Membership;
};

/** What the servers tell of themselves, apart from their buckets, in the order asked. */
export interface ServerFindings {
  /** How often they write to disk. */
  readonly syncing: Finding | null;
  /** Whether those that are named are one coordinator. */
  readonly membership: Finding | null;
}

/** A connection in use. */
export class Session {
  readonly link: Link;
  /** Null until the buckets were found fit. */
  requests: Requests | null = null;
  /** What is to be said of the server's version. */
  versionWarning: Finding | null = null;
  /** As they were asked last, be it on an earlier connection. */
  findings: ServerFindings = { syncing: null, membership: null };
  /** The newest round trip, in milliseconds. */
  rttMs: number | null = null;
  readonly #options: SessionOptions;
  readonly #hooks: SessionHooks;
  readonly #watch: TenureWatch;
  #jsm: JetStreamManager | null = null;
  #maker: JetStreamManager | null = null;
  /** Whether the servers tell us how often they sync; not asked again where they do not. */
  #tellsSyncing = true;
  #cancelRtt: () => void = () => {};

  constructor(
    link: Link,
    options: SessionOptions,
    hooks: SessionHooks,
  ) {
    this.link = link;
    this.#options = options;
    this.#hooks = hooks;
    this.#watch = new TenureWatch(link.nc, {
      bucket: tenuresOf(options.bucket),
      incarnation: options.incarnation,
      onTenure: (...told) => hooks.onTenure(...told),
    });
    this.#heed(options.bucket);
    this.#heed(tenuresOf(options.bucket));
  }

  /** Hears when somebody makes, changes or deletes the bucket; where that is denied, looks tell later. */
  #heed(bucket: string): void {
    this.link.nc.subscribe(`${STREAM_ADVISORIES}${streamOf(bucket)}`, {
      callback: (error, message) => {
        if (error !== null) return;
        if (message.subject.startsWith(DELETED)) this.#hooks.onDeleted();
        this.#hooks.onTrouble();
      },
    });
  }

  /** Looks at the buckets, and makes those that are missing; see {@linkcode inspectBuckets}. */
  async inspect(ttl: Pick<BucketsOptions, "wantedTtlMs" | "newTtlMs">): Promise<Inspection> {
    const { nc } = this.link;
    this.link.forbidden = null; // what was denied earlier does not explain why this fails
    this.#jsm ??= await jetstreamManager(nc, { checkAPI: false, timeout: LOOK_TIMEOUT_MS });
    this.#maker ??= await jetstreamManager(nc, { checkAPI: false, timeout: MAKE_TIMEOUT_MS });
    return await inspectBuckets({
      jsm: this.#jsm,
      maker: this.#maker,
      bucket: this.#options.bucket,
      replicas: this.#options.replicas,
      ...ttl,
      clustered: nc.info?.cluster !== undefined,
      mustBeClustered: this.#options.membership.mustBeClustered,
      choosesFirst: startsAnywhere(this.link.serverVersion),
      wallMs: () => this.#options.clock.wallMs(),
    });
  }

  /** Asks the servers about themselves, which nothing waits for: news are told as trouble is. */
  async askServers(): Promise<void> {
    const before = this.findings;
    const [syncing, membership] = await Promise.all([
      this.#askSyncing(),
      this.#options.membership.survey(this.link),
    ]);
    this.findings = { syncing, membership };
    if (JSON.stringify(this.findings) !== JSON.stringify(before)) this.#hooks.onTrouble();
  }

  async #askSyncing(): Promise<Finding | null> {
    const { syncing } = this.findings;
    if (!this.#tellsSyncing) return syncing;
    const { told, finding } = await askSyncing(this.link.nc);
    this.#tellsSyncing = told;
    return told ? finding : syncing;
  }

  /** Lets requests through. */
  open(ttlMs: number): void {
    if (this.requests !== null || !this.link.isUp) return;
    const { clock, timers } = this.#options;
    this.requests = new Requests({
      nc: this.link.nc,
      transport: this.link.transport,
      isUp: () => this.link.isUp,
      clock,
      timers,
      timeoutMs: requestTimeoutMs(ttlMs),
      onTrouble: () => this.#hooks.onTrouble(),
      onAnswer: (...told) => this.#hooks.onAnswer(...told),
    });
    this.#measure();
  }

  /** Follows the tenures. Returns where it is, or why it cannot. */
  async follow(
    created: string,
    position: WatchPosition | null,
  ): Promise<WatchPosition | Finding> {
    try {
      return await this.#watch.ensure(created, position);
    } catch (error) {
      const { forbidden } = this.link;
      // A consumer's name is another one each time.
      const reason = (error as Error).message.replaceAll(/\boc_\w+/g, "of ours");
      const why = forbidden ??
        `${reason}. Tried again meanwhile; if it lasts, see the nats-server's log`;
      return {
        check: "tenure_watch",
        message: `Cannot follow the tenures, so holders are only known once asked for: ${why}`,
      };
    }
  }

  /** The connection is down or given up. */
  end(reason: string): void {
    this.#cancelRtt();
    this.#watch.end();
    this.requests?.end(reason);
  }

  async #measure(): Promise<void> {
    const { clock, timers } = this.#options;
    const sentMs = clock.bootMs();
    try {
      await this.link.nc.flush();
    } catch {
      return; // Down: a new session measures its own.
    }
    this.rttMs = clock.bootMs() - sentMs;
    if (this.link.isUp) this.#cancelRtt = timers.after(RTT_INTERVAL_MS, () => this.#measure());
  }
}
