/**
 * What the adapter tells the daemon besides what every coordinator tells.
 * @module
 */
import type { BucketsSeen, CoordinatorListener } from "../ports/coordinator.ts";
import type { Finding } from "./setup_error.ts";

/** Why the coordinator cannot be used now. */
export interface Problem extends Finding {
  /**
   * True: it contradicts the setup. Before READY the agent exits with 78; later it is
   * `misconfigured`. The adapter goes on looking either way, and tells when it is over.
   */
  readonly fatal: boolean;
  /**
   * What it is about, without anything that differs from try to try: a topic is news once, until all
   * is well again.
   */
  readonly topic: string;
}

/** How the buckets contradict the agent by now. */
export interface Drift extends Finding {
  /** The TTL that the bucket has now, in milliseconds, where that is what changed. */
  readonly ttlMs?: number;
}

/** A bucket that did not exist, or no longer, and was made now. */
export interface CreatedBucket extends Finding {
  /** How many copies of each record it keeps. */
  readonly replicas: number;
}

/** What was found when the coordinator became usable. */
export interface ReadyFacts {
  /** The TTL of leases, in milliseconds: the bucket's. Never changes while we run. */
  readonly ttlMs: number;
  /** The server's URL, without credentials. */
  readonly server: string;
  readonly serverVersion: string;
  /** What a person should know, for the log and `--check`. */
  readonly warnings: readonly Finding[];
  /** The buckets that were made now. */
  readonly created: readonly CreatedBucket[];
}

/** Told about the connection, the buckets, and the tenures. */
export interface NatsListener extends CoordinatorListener {
  /**
   * The coordinator can be used: before the first `onConnection(true)`, after each later one as soon
   * as anything was answered, and again when a warning came or went, a bucket had to be made, or a
   * problem is over. All problems told before are.
   */
  onReady(facts: ReadyFacts): void;
  /**
   * The coordinator cannot be used, or not be inspected, or credentials could not be renewed. `news`:
   * this topic was not told since all was well last; else it is only in other words by now.
   */
  onProblem(problem: Problem, news: boolean): void;
  /**
   * The buckets changed under us and contradict the agent now: stop granting. Null: put right.
   * Writes still go through, so that leases can be released.
   */
  onDrift(fault: Drift | null): void;
  /**
   * What is known of the buckets. Told before a connection is used whose buckets were not looked at, when
   * one is deleted, and with each look at them, also one that fails; "others" once each time. Where they
   * are others, entries and records of before are gone, though those who hold by them may not know yet; they
   * hold for a TTL, which was `ttlBeforeMs` where that is known.
   */
  onBuckets(seen: BucketsSeen, ttlBeforeMs?: number): void;
  /**
   * The server does not let us do what an agent has to; null: it does again. Requests that were denied
   * are unknown at once. `news`: other permissions are lacking than before.
   */
  onDenied(denied: Finding | null, news: boolean): void;
}

/** The connection as it is now. */
export interface NatsStats {
  /** Whether there is a connection; whether it can be used, too, says `ready`. */
  readonly connected: boolean;
  /** Whether requests go out and are answered, or the buckets were inspected. */
  readonly ready: boolean;
  /** The server's URL without credentials, or null. */
  readonly server: string | null;
  readonly version: string | null;
  /** The newest round trip to the server, in milliseconds, or null. */
  readonly rttMs: number | null;
  /** How far the server's clock was ahead of ours at the last inspection, in milliseconds, or null. */
  readonly aheadMs: number | null;
}
