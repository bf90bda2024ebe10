/**
 * The streams behind the two buckets, as we create them. docs/coordinator.md gives the reason for
 * each setting.
 * @module
 */
import { DiscardPolicy, RetentionPolicy, StorageType, type StreamConfig } from "@nats-io/jetstream";
import { nanos } from "@nats-io/transport-node";
import { keyPrefix, streamOf } from "./wire.ts";

/** Revisions kept of each tenure record: two a tenure, its begin and its release. */
const TENURE_HISTORY = 8;

/** The server's own default, and the longest window for duplicates that any TTL needs, in milliseconds. */
const DUPLICATE_WINDOW_MS = 120_000;

/** The bucket of the tenure records that belongs to a lease bucket. */
export function tenuresOf(bucket: string): string {
  return `${bucket}-tenures`;
}

function common(bucket: string, replicas: number): Partial<StreamConfig> & { name: string } {
  return {
    name: streamOf(bucket),
    subjects: [keyPrefix(bucket) + ">"],
    retention: RetentionPolicy.Limits,
    storage: StorageType.File,
    discard: DiscardPolicy.New,
    num_replicas: replicas,
    allow_direct: false,
    deny_delete: true,
    allow_rollup_hdrs: true,
    max_msgs: -1,
    max_bytes: -1,
    max_msg_size: -1,
    max_consumers: -1,
  };
}

/** What a lease bucket is created with. */
export function leasesConfig(
  bucket: string,
  options: { ttlMs: number; replicas: number; firstSeq?: number },
): Partial<StreamConfig> & { name: string } {
  return {
    ...common(bucket, options.replicas),
    description: "zit lease agent: who may write each store now",
    max_msgs_per_subject: 1,
    max_age: nanos(options.ttlMs),
    // A server refuses a window longer than the age.
    duplicate_window: nanos(Math.min(options.ttlMs, DUPLICATE_WINDOW_MS)),
    ...(options.firstSeq === undefined ? {} : { first_seq: options.firstSeq }),
  };
}

/** What a tenures bucket is created with. */
export function tenuresConfig(
  bucket: string,
  options: { replicas: number; firstSeq?: number },
): Partial<StreamConfig> & { name: string } {
  return {
    ...common(tenuresOf(bucket), options.replicas),
    description: "zit lease agent: who held each store, and how it ended",
    max_msgs_per_subject: TENURE_HISTORY,
    max_age: 0,
    duplicate_window: nanos(DUPLICATE_WINDOW_MS),
    // Made again, it gives no revision for the second time that somebody may still expect.
    ...(options.firstSeq === undefined ? {} : { first_seq: options.firstSeq }),
  };
}

/**
 * The first revision of a new lease bucket: microseconds since 1970, or above the newest recorded
 * epoch where a clock was set back.
 *
 * Revisions grow by one a write. In milliseconds they would overtake the clock in a fleet of more
 * than 5,000 leases of 15 s (over 1,000 renewals a second), and a bucket made again would start
 * below its predecessor's epochs. A stream does not write a million times a second, and 2^53
 * microseconds last until the year 2255.
 */
export function firstRevision(wallMs: number, newestEpoch: number): number {
  return Math.max(Math.floor(wallMs * 1_000), newestEpoch + 1);
}
