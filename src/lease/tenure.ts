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
}
