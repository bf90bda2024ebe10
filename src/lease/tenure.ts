/**
 * Tenure records, and what the previous one says about the failover grace.
 * @module
 */

/** One unbroken holding of a store by one incarnation, as kept in the tenures bucket. */
export interface TenureRecord {
  readonly node: string;
  readonly incarnation: string;
  readonly address: string | null;
  /** The entry's revision at acquisition: the fencing token. */
  readonly epoch: number;
  /** RFC 3339, for people; never compared with a clock. */
  readonly acquired_at: string;
  /** Present once the tenure was cleanly released. */
  readonly released_at?: string;
  /** Why it was released. */
  readonly reason?: string;
  /**
   * For how long, in ms, somebody may believe in a grant that whoever displaces this holder knows nothing of:
   * the TTL that it goes by, whatever the bucket's is by now, or the grace that it owes itself where that is
   * longer. Stored beside the record; left out where it is not.
   */
  readonly ttlMs?: number;
}

/** What the previous tenure record means for a store just acquired. */
export type Succession =
  /** Nobody is displaced: the first start, our own earlier tenure, or a clean release. */
  | "clean"
  /** A holder may not know yet that it is displaced: it gets the failover grace. */
  | "grace"
  /** The record's epoch is not below ours: the coordinator has gone back in time. */
  | "stale";

/**
 * Decides from the newest tenure record what the holder of the new `epoch` owes.
 *
 * The record was read, and reads may be stale. That is harmless: our own record is then written by
 * compare-and-set on the revision that was read, so a decision made on an old record cannot be
 * acknowledged.
 *
 * @param previous The newest record; null where there is none.
 * @param epoch Our entry's revision at acquisition.
 * @param isOurs Whether an incarnation is ours, or an earlier one of this host whose entry we
 * adopted and whose clients are all gone.
 */
export function succession(
  previous: TenureRecord | null,
  epoch: number,
  isOurs: (incarnation: string) => boolean,
): Succession {
  if (previous === null) return "clean";
  if (previous.epoch >= epoch) return "stale";
  if (previous.released_at !== undefined) return "clean";
  return isOurs(previous.incarnation) ? "clean" : "grace";
}
