/**
 * What the agent needs of a coordinator. Only the two compare-and-set writes decide anything; reads
 * and tenure hints inform, and may be stale.
 * @module
 */
import type { EntryRead, Outcome, TenureRead } from "../lease/answers.ts";
import type { TenureRecord } from "../lease/tenure.ts";

/**
 * What is known of the buckets on a connection that is used: they were not looked at yet, or not since one
 * was deleted; they are those of before, or the first; they are others, made after those were lost; or they
 * may be, and the host has forgotten which it used.
 */
export type BucketsSeen = "unseen" | "known" | "others" | "forgotten";

export type { EntryRead, Outcome, TenureRead };

/** Told when something about the connection or the tenures changes. */
export interface CoordinatorListener {
  /** The connection came up and the buckets were inspected, or went down. */
  onConnection(connected: boolean): void;
  /**
   * A tenure record was written by anybody, at this revision of its key in the tenures bucket. A
   * hint: may be stale, late, or never come.
   */
  onTenure(store: string, record: TenureRecord, revision: number): void;
}

/**
 * The coordinator. Each call sends at once, or not at all when not connected (then `done` gets
 * `unknown`), and calls `done` exactly once, never before the call returned. Calls for many stores
 * are pipelined on one connection; none waits for another.
 */
export interface Coordinator {
  /** Whether the connection is known to be up. */
  readonly connected: boolean;
  /**
   * Writes this node's entry if the key's newest revision is `expect` (0: no message for the key).
   * `ok` carries the new revision.
   */
  putEntry(store: string, expect: number, done: (outcome: Outcome<number>) => void): void;
  /** Puts a tombstone if the key's newest revision is `expect`; `ok` carries its revision. */
  deleteEntry(store: string, expect: number, done: (outcome: Outcome<number>) => void): void;
  /** Reads the key's newest message. */
  readEntry(store: string, done: (outcome: Outcome<EntryRead>) => void): void;
  /** Reads the store's newest tenure record. */
  readTenure(store: string, done: (outcome: Outcome<TenureRead>) => void): void;
  /** Writes a tenure record if its key's newest revision is `expect`; `ok` carries the new one. */
  putTenure(
    store: string,
    expect: number,
    record: TenureRecord,
    done: (outcome: Outcome<number>) => void,
  ): void;
  /** The kept history of tenure records, newest first. */
  readHistory(store: string, done: (outcome: Outcome<TenureRecord[]>) => void): void;
}
