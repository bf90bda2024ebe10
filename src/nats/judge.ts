/**
 * What an existing bucket's configuration means for us: what contradicts the agent, and what a
 * person should know. Pure; docs/coordinator.md has the table.
 * @module
 */
import { DiscardPolicy, RetentionPolicy, StorageType, type StreamInfo } from "@nats-io/jetstream";
import { millis } from "@nats-io/transport-node";
import { SHORT_TTL_MS } from "./options.ts";
import type { Finding } from "./setup_error.ts";
import { keyPrefix } from "./wire.ts";

/** Members that the client library's types do not know yet, or know as required. */
type Config = Partial<StreamInfo["config"]> & { readonly persist_mode?: string };

/** What was found in a bucket. A fault forbids granting; a warning does not. */
export interface Judgement {
  readonly faults: readonly Finding[];
  readonly warnings: readonly Finding[];
}

/** Below this size, in bytes, an entry with its headers may not fit. */
const SMALL_MESSAGE_BYTES = 2_048;

class Judge {
  readonly faults: Finding[] = [];
  readonly warnings: Finding[] = [];
  readonly #bucket: string;

  constructor(bucket: string) {
    this.#bucket = bucket;
  }

  fault(when: unknown, check: string, message: string): void {
    if (when) this.faults.push({ check, message: `Bucket ${this.#bucket} ${message}` });
  }

  warn(when: unknown, check: string, message: string): void {
    if (when) this.warnings.push({ check, message: `Bucket ${this.#bucket} ${message}` });
  }
}

/** A bucket's TTL in milliseconds; 0 for none. */
export function ttlMsOf(info: StreamInfo): number {
  return millis(info.config.max_age ?? 0);
}

/**
 * Judges the lease bucket.
 *
 * @param wantedTtlMs the TTL that was asked for, or adopted before; undefined: any
 */
export function judgeLeases(
  bucket: string,
  info: StreamInfo,
  options: { wantedTtlMs?: number; clustered: boolean },
): Judgement {
  const judge = new Judge(bucket);
  const config: Config = info.config;
  judgeTtl(judge, ttlMsOf(info), options.wantedTtlMs);
  judgeStream(judge, bucket, config);
  judge.fault(
    config.subject_delete_marker_ttl,
    "limit_markers",
    "leaves limit markers (subject_delete_marker_ttl): the marker of an expired revision can wipe " +
      "a renewal that was acknowledged. Set it to 0",
  );
  judge.warn(
    config.allow_msg_ttl,
    "message_ttl",
    "allows TTLs of single keys (allow_msg_ttl): an entry written with one may never expire, or " +
      "expire before the lease. We write none: see that nobody else does",
  );
  judge.warn(
    config.max_msgs_per_subject !== 1,
    "history",
    "keeps old revisions of a key (max_msgs_per_subject): 1 is enough, and more cost space at each " +
      "renewal. Set it to 1",
  );
  judgeCopies(judge, info, options.clustered);
  return judge;
}

/** Judges the tenures bucket. */
export function judgeTenures(
  bucket: string,
  info: StreamInfo,
  options: { clustered: boolean },
): Judgement {
  const judge = new Judge(bucket);
  const config: Config = info.config;
  judgeStream(judge, bucket, config);
  judge.fault(
    config.max_age || config.subject_delete_marker_ttl,
    "tenures_ttl",
    "forgets records after a while (max_age): a long tenure would lose its record, and whoever " +
      "displaces it would owe it no grace. Set max_age to 0",
  );
  judge.warn(
    config.max_msgs_per_subject === 1,
    "history",
    "keeps only the newest record of each store (max_msgs_per_subject), so there is no history. " +
      "Set it to 8",
  );
  judgeCopies(judge, info, options.clustered);
  return judge;
}

function judgeTtl(judge: Judge, ttlMs: number, wantedMs: number | undefined): void {
  judge.fault(
    ttlMs === 0,
    "ttl",
    "has no TTL (max_age), so the lease of a dead holder would never end. Set max_age, for instance to 15s",
  );
  judge.fault(
    ttlMs !== 0 && wantedMs !== undefined && ttlMs !== wantedMs,
    "ttl",
    `has a TTL of ${text(ttlMs)}, but this agent goes by ${text(wantedMs ?? 0)}. All nodes must ` +
      `go by the bucket's: leave --ttl away to adopt it, or change max_age`,
  );
  judge.warn(
    ttlMs !== 0 && ttlMs < SHORT_TTL_MS,
    "short_ttl",
    `has a TTL of ${text(ttlMs)}: below 3s there is no room for a retry or an ` +
      "election. Set max_age to 15s",
  );
}

/** What must hold for compare-and-set by key to mean anything, in either bucket. */
function judgeStream(judge: Judge, bucket: string, config: Config): void {
  const all = keyPrefix(bucket) + ">";
  judge.fault(
    !config.subjects?.includes(all) || config.subject_transform !== undefined,
    "subjects",
    `does not keep its keys under ${all} as they are sent. Give it these subjects, and no ` +
      "subject_transform",
  );
  judge.fault(
    config.mirror !== undefined || (config.sources?.length ?? 0) > 0,
    "sources",
    "is filled from another stream (mirror or sources), past the compare-and-set that decides. Use " +
      "another --bucket",
  );
  judge.fault(
    config.sealed || config.no_ack,
    "read_only",
    "is sealed, or acknowledges no writes. Use another --bucket",
  );
  judge.fault(
    config.allow_msg_counter,
    "counter",
    "keeps counters (allow_msg_counter), not entries. Use another --bucket",
  );
  judge.fault(
    config.retention !== undefined && config.retention !== RetentionPolicy.Limits,
    "retention",
    `drops entries once they are read (retention ${config.retention}). Use limits`,
  );
  judgeLimits(judge, config);
  judge.warn(
    config.allow_direct,
    "allow_direct",
    "lets followers answer reads (allow_direct), so other programs may see a holder that is no " +
      "more. Our reads ask the leader; set it to false for theirs",
  );
  judge.warn(
    !config.deny_delete,
    "deny_delete",
    "lets anybody delete single messages (deny_delete is false), which no compare-and-set sees. " +
      "Set it to true",
  );
  judge.warn(
    config.storage === StorageType.Memory || config.persist_mode === "async",
    "storage",
    "is kept in memory or written late: a restart of its servers can lose acknowledged writes. " +
      "Keep it in files, written at once",
  );
}

function judgeLimits(judge: Judge, config: Config): void {
  const limited = (config.max_bytes ?? -1) > 0 || (config.max_msgs ?? -1) > 0;
  judge.fault(
    limited && config.discard !== DiscardPolicy.New,
    "limits",
    "throws the oldest entries away when it is full (max_bytes or max_msgs with discard old), " +
      "whoever holds them. Remove the limit, or discard new",
  );
  judge.warn(
    limited && config.discard === DiscardPolicy.New,
    "limits",
    "has a size limit (max_bytes or max_msgs): once it is full no store can be acquired " +
      "or renewed. Remove the limit",
  );
  judge.warn(
    (config.max_msg_size ?? -1) > 0 && (config.max_msg_size ?? -1) < SMALL_MESSAGE_BYTES,
    "max_msg_size",
    `refuses messages above ${config.max_msg_size} bytes, which ours may be. Set max_msg_size to -1`,
  );
}

function judgeCopies(judge: Judge, info: StreamInfo, clustered: boolean): void {
  judge.warn(
    clustered && info.config.num_replicas === 1,
    "replicas",
    "has one replica in a cluster: if that server fails, nobody can write until it is back. Use 3",
  );
}

/** A duration as a person writes it. */
function text(ms: number): string {
  return ms % 1_000 === 0 ? `${ms / 1_000}s` : `${ms}ms`;
}
