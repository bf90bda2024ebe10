/**
 * Finds the two buckets, or creates them, and judges what is there.
 * @module
 */
import {
  JetStreamApiError,
  type JetStreamManager,
  type StreamConfig,
  type StreamInfo,
} from "@nats-io/jetstream";
import { DEFAULT_TTL_MS } from "../lease/timing.ts";
import { judgeLeases, type Judgement, judgeTenures, ttlMsOf } from "./judge.ts";
import { parseTenure } from "./records.ts";
import { LeaderlessError, NoMemberError } from "./inspection_failure.ts";
import type { CreatedBucket } from "./listener.ts";
import { type Finding, SetupError } from "./setup_error.ts";
import { firstRevision, leasesConfig, tenuresConfig, tenuresOf } from "./stream_config.ts";
import { keyPrefix, NO_MESSAGE_FOUND, streamOf } from "./wire.ts";

/** Somebody created the stream with another configuration: with another first sequence at least. */
const STREAM_NAME_IN_USE = 10058;
/** There are fewer servers with JetStream than replicas. One that is down for now still counts. */
const NO_SUITABLE_PEERS = 10005;
/** More than one replica on a server of its own. */
const NOT_CLUSTERED = 10074;
const STREAM_NOT_FOUND = 10059;

/** Copies by default in a cluster: one server may fail. */
const DEFAULT_CLUSTER_REPLICAS = 3;

/** What to look for. */
export interface BucketsOptions {
  readonly jsm: JetStreamManager;
  /** The same with more patience. */
  readonly maker: JetStreamManager;
  readonly bucket: string;
  /** Undefined: 3 in a cluster of at least 3, else 1. */
  readonly replicas?: number;
  /** The TTL that was asked for or adopted before, in milliseconds. Undefined: the bucket's. */
  readonly wantedTtlMs?: number;
  /** The TTL of a new bucket, in milliseconds. Default: 15 s. */
  readonly newTtlMs?: number;
  /** Whether the server is a member of a cluster. */
  readonly clustered: boolean;
  /** Whether a server of its own must not be given buckets: they would be a second coordinator. */
  readonly mustBeClustered: boolean;
  /** Whether the server can start a stream at another sequence than 1 (2.10 and newer). */
  readonly choosesFirst: boolean;
  /** Milliseconds since 1970. */
  wallMs(): number;
}

/** Both buckets as they are now. */
export interface Inspection {
  /** The lease bucket's TTL in milliseconds; 0 for none. */
  readonly ttlMs: number;
  readonly faults: readonly Finding[];
  readonly warnings: readonly Finding[];
  /** The buckets that did not exist and were made. */
  readonly created: readonly CreatedBucket[];
  /** When the leases stream was made: another one is another bucket. */
  readonly leasesCreated: string;
  /** When the tenures stream was made: another one's sequences mean nothing for it. */
  readonly tenuresCreated: string;
  /** How far the server's clock is ahead of ours, in milliseconds; null: it did not say. */
  readonly aheadMs: number | null;
}

/**
 * Inspects both buckets, and creates those that do not exist. Agents that race all succeed.
 *
 * @throws {SetupError} where creating contradicts the setup; anything else may pass
 */
export async function inspectBuckets(options: BucketsOptions): Promise<Inspection> {
  const { bucket, clustered, wantedTtlMs, newTtlMs = DEFAULT_TTL_MS } = options;
  const created: CreatedBucket[] = [];
  const askedMs = options.wallMs();
  // The tenures first: their epochs bound the first revision of new leases.
  const tenures = await findOrCreate(options, created, {
    bucket: tenuresOf(bucket),
    sibling: bucket,
    config: (replicas) =>
      Promise.resolve(tenuresConfig(bucket, {
        replicas,
        firstSeq: options.choosesFirst ? firstRevision(options.wallMs(), 0) : undefined,
      })),
  });
  const aheadMs = aheadOf(tenures, askedMs, options.wallMs());
  const leases = await findOrCreate(options, created, {
    bucket,
    sibling: tenuresOf(bucket),
    config: async (replicas) =>
      leasesConfig(bucket, {
        ttlMs: newTtlMs,
        replicas,
        firstSeq: options.choosesFirst
          ? firstRevision(options.wallMs(), await newestEpoch(options))
          : undefined,
      }),
  });
  for (const [name, info] of [[bucket, leases], [tenuresOf(bucket), tenures]] as const) {
    // Whoever is left of them answers, but nothing can be written.
    if (info.cluster !== undefined && !info.cluster.leader) throw new LeaderlessError(name);
  }
  const judgements: Judgement[] = [
    judgeLeases(bucket, leases, { wantedTtlMs, clustered }),
    judgeTenures(tenuresOf(bucket), tenures, { clustered }),
  ];
  return {
    ttlMs: ttlMsOf(leases),
    faults: judgements.flatMap(({ faults }) => faults),
    warnings: [
      ...judgements.flatMap(({ warnings }) => warnings),
      ...options.choosesFirst ? [] : [FIRST_REVISION],
    ],
    created,
    leasesCreated: String(leases.created),
    tenuresCreated: String(tenures.created),
    aheadMs,
  };
}

/** An answer that took longer than this tells nothing of the server's clock: half of it is in doubt. */
const MAX_DOUBT_MS = 1_000;

/** How far a server's clock is ahead of ours, which read these times before and after it answered. */
function aheadOf({ ts }: StreamInfo, beforeMs: number, afterMs: number): number | null {
  const aheadMs = Date.parse(ts ?? "") - (beforeMs + afterMs) / 2;
  return Number.isFinite(aheadMs) && afterMs - beforeMs <= MAX_DOUBT_MS ? aheadMs : null;
}

const FIRST_REVISION: Finding = {
  check: "first_revision",
  message: "The server starts every bucket at revision 1 (first_seq needs 2.10): if the lease " +
    "bucket is made again, epochs fall below those on disk and stores are refused. Upgrade the server",
};

interface Wanted {
  readonly bucket: string;
  /** The other one of the pair. */
  readonly sibling: string;
  config(replicas: number): Promise<Partial<StreamConfig> & { name: string }>;
}

async function findOrCreate(
  options: BucketsOptions,
  created: CreatedBucket[],
  wanted: Wanted,
): Promise<StreamInfo> {
  const { jsm } = options;
  try {
    return await jsm.streams.info(streamOf(wanted.bucket));
  } catch (error) {
    if (!isApiError(error, STREAM_NOT_FOUND)) throw error;
  }
  try {
    const info = await create(options, wanted);
    created.push(describeCreated(wanted.bucket, info));
    return info;
  } catch (error) {
    if (!isApiError(error, STREAM_NAME_IN_USE)) throw error;
    return await jsm.streams.info(streamOf(wanted.bucket)); // Another agent was first.
  }
}

async function create(options: BucketsOptions, wanted: Wanted): Promise<StreamInfo> {
  const { maker, clustered } = options;
  const replicas = options.replicas ?? (clustered ? DEFAULT_CLUSTER_REPLICAS : 1);
  try {
    return await maker.streams.add(await wanted.config(replicas));
  } catch (error) {
    const tooFew = isApiError(error, NO_SUITABLE_PEERS) || isApiError(error, NOT_CLUSTERED);
    if (!tooFew) throw error;
    // It said that it is in a cluster, and was believed.
    if (options.mustBeClustered && isApiError(error, NOT_CLUSTERED)) throw new NoMemberError();
    if (options.replicas !== undefined) {
      throw new SetupError(
        "replicas",
        `Cannot create bucket ${wanted.bucket} with ${replicas} replicas: ` +
          `${(error as Error).message}. Add servers, or give fewer --replicas`,
      );
    }
    // A cluster of which a server is away, or was a minute ago, looks like one that is too small.
    // Where the other bucket has copies this one had them, too: made again in or after an outage, it
    // must not be left with one. As many as the other, or not now.
    return await maker.streams.add(
      await wanted.config(await replicasOf(options, wanted.sibling) || 1),
    );
  }
}

/** How many copies a bucket has; 0 if it does not exist. */
async function replicasOf({ jsm }: BucketsOptions, bucket: string): Promise<number> {
  try {
    return (await jsm.streams.info(streamOf(bucket))).config.num_replicas;
  } catch (error) {
    if (isApiError(error, STREAM_NOT_FOUND)) return 0;
    throw error;
  }
}

function describeCreated(bucket: string, info: StreamInfo): CreatedBucket {
  const replicas = info.config.num_replicas;
  const copies = replicas === 1
    ? "1 replica: no store can be written while its server is away, and its disk is the only " +
      "copy. For more, run a cluster of 3 nats-servers with JetStream"
    : `${replicas} replicas`;
  return {
    replicas,
    check: "bucket_created",
    message: `Bucket ${bucket} did not exist and was made, with ${copies}`,
  };
}

/** The epoch in the record that was written last, or 0: a floor in case the clock was set back. */
async function newestEpoch({ jsm, bucket }: BucketsOptions): Promise<number> {
  const tenures = tenuresOf(bucket);
  try {
    const message = await jsm.streams.getMessage(streamOf(tenures), {
      last_by_subj: keyPrefix(tenures) + ">",
    });
    return message === null ? 0 : parseTenure(message.data)?.epoch ?? 0;
  } catch (error) {
    if (isApiError(error, NO_MESSAGE_FOUND)) return 0;
    throw error;
  }
}

function isApiError(error: unknown, code: number): boolean {
  return error instanceof JetStreamApiError && error.code === code;
}
