/**
 * What the adapter tells the daemon besides what every coordinator tells.
 * @module
 */
import type { CoordinatorListener } from "../ports/coordinator.ts";
import type { Finding } from "./setup_error.ts";

/** Why the coordinator cannot be used now. */
export interface Problem extends Finding {
  /**
   * True: it contradicts the setup. Before READY the agent exits with `exit`; later it is
   * `misconfigured`. The adapter goes on looking either way, and tells when it is over.
   */
  readonly fatal: boolean;
  /** The exit status; only where fatal. */
  readonly exit?: number;
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
  /** The buckets that did not exist, or no longer, and were made now, in words for the log. */
  readonly created: readonly Finding[];
}

/** Told about the connection, the buckets, and the tenures. */
export interface NatsListener extends CoordinatorListener {
  /**
   * The coordinator can be used: before each `onConnection(true)`, and again when a warning came or
   * went or a bucket had to be made. A fatal problem told before is over.
   */
  onReady(facts: ReadyFacts): void;
  /**
   * The coordinator cannot be used, or not be inspected, or credentials could not be renewed. Each
   * is told once until all is well again.
   */
  onProblem(problem: Problem): void;
  /**
   * The buckets changed under us and contradict the agent now: stop granting. Null: put right.
   * Writes still go through, so that leases can be released.
   */
  onDrift(fault: Finding | null): void;
}

/** The connection as it is now. */
export interface NatsStats {
  /** Whether there is a connection; whether it can be used, too, says `ready`. */
  readonly connected: boolean;
  /** Whether the buckets were inspected and requests go out. */
  readonly ready: boolean;
  /** The server's URL without credentials, or null. */
  readonly server: string | null;
  readonly version: string | null;
  /** The newest round trip to the server, in milliseconds, or null. */
  readonly rttMs: number | null;
  /** How far the server's clock was ahead of ours at the last inspection, in milliseconds, or null. */
  readonly aheadMs: number | null;
}
