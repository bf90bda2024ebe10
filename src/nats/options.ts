/**
 * What the coordinator adapter is told: where NATS is, who we are, which bucket, and the clocks.
 * @module
 */
import type { Clock, Timers } from "../ports/clock.ts";
import {
  ADDRESS,
  BUCKET_NAME,
  carriesCredentials,
  isAddress,
  isBucketName,
  isNodeName,
  isServerUrl,
  MAX_REPLICAS,
  MIN_TTL_MS,
  NODE_NAME,
} from "./option_rules.ts";
import { SetupError } from "./setup_error.ts";

/** Files with credentials: read at each connect, so that they can be replaced while we run. */
export interface CredentialFiles {
  /** A `.creds` file: a user's JWT and seed. */
  readonly creds?: string;
  /** A file with an nkey seed. */
  readonly nkey?: string;
  readonly user?: string;
  readonly passwordFile?: string;
  readonly tlsCa?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
}

/** What outlasts the agent, and is asked about buckets by their name. */
export interface ServerMemory {
  /** Whether the bucket was used on servers of a cluster. */
  wasClustered(bucket: string): boolean;
  rememberClustered(bucket: string): void;
  /** When the bucket that was used was made; null where none is known, "" where that was forgotten. */
  madeOf(bucket: string): string | null;
  rememberMade(bucket: string, made: string): void;
}

/** How to reach and use the coordinator. */
export interface NatsOptions {
  /** `nats://` or `tls://` URLs, or `host:port`; all servers of the cluster, best. */
  readonly urls: readonly string[];
  readonly credentials?: CredentialFiles;
  /** The lease bucket. Default: `leases`. */
  readonly bucket?: string;
  /** Copies of each record. Default: 3 in a cluster that has 3 servers with JetStream, else 1. */
  readonly replicas?: number;
  /** The TTL that leases shall have, in milliseconds. Default: the bucket's; 15 s for a new one. */
  readonly ttlMs?: number;
  /** Goes on with a server that is known to grant twice. */
  readonly allowUnsafeServer?: boolean;
  /** What is known of the servers from earlier runs. Default: nothing, and nothing is remembered. */
  readonly memory?: ServerMemory;
  /** This host's unique name: the value of our entries. */
  readonly node: string;
  readonly incarnation: string;
  /** Where writes for our stores can be sent; null: nowhere. */
  readonly address: string | null;
  readonly clock: Clock;
  readonly timers: Timers;
}

/** Shorter TTLs leave no room for an election or a retry: a warning. In milliseconds. */
export const SHORT_TTL_MS = 3_000;

/** @throws {SetupError} for options that could never work */
export function checkOptions(options: NatsOptions): void {
  const { urls, bucket, replicas, ttlMs } = options;
  if (urls.length === 0) throw new SetupError("nats", "No NATS URL was given");
  urls.forEach(checkUrl);
  if (bucket !== undefined && !isBucketName(bucket)) {
    throw new SetupError("bucket", `"${bucket}" is no bucket name: use ${BUCKET_NAME}`);
  }
  if (
    replicas !== undefined &&
    (!Number.isInteger(replicas) || replicas < 1 || replicas > MAX_REPLICAS)
  ) {
    throw new SetupError("replicas", `Cannot keep ${replicas} replicas: use 1, 3 or 5`);
  }
  if (ttlMs !== undefined && !(ttlMs >= MIN_TTL_MS && Number.isFinite(ttlMs))) {
    throw new SetupError("ttl", `A TTL of ${ttlMs} ms is too short: use at least ${MIN_TTL_MS} ms`);
  }
  checkText("node", options.node, NODE_NAME, isNodeName);
  checkText("incarnation", options.incarnation, NODE_NAME, isNodeName);
  if (options.address !== null) checkText("address", options.address, ADDRESS, isAddress);
}

function checkText(
  name: string,
  text: string,
  rule: string,
  fits: (text: string) => boolean,
): void {
  if (fits(text)) return;
  throw new SetupError(name, `The ${name} ${JSON.stringify(text)} is not ${rule}`);
}

function checkUrl(url: string): void {
  if (carriesCredentials(url)) {
    throw new SetupError(
      "nats",
      `The NATS URL ${withoutSecrets(url)} carries credentials, which everybody on the host can ` +
        `see: put them into a file (--creds, --nkey, or --user and --password-file)`,
    );
  }
  if (isServerUrl(url)) return;
  throw new SetupError("nats", `"${url}" is no NATS URL: use nats://HOST:PORT`);
}

/** A URL as it may be shown. */
export function withoutSecrets(url: string): string {
  return url.replace(/^((?:\w+:\/\/)?).*@/, "$1…@");
}
