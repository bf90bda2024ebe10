/**
 * What a coordinator answers.
 * @module
 */
import type { TenureRecord } from "./tenure.ts";

/**
 * What came of a request.
 *
 * - `ok`: acknowledged.
 * - `conflict`: the coordinator compared and refused; `lastRevision` is the key's newest revision
 *   where the coordinator told it.
 * - `unknown`: no answer in time, or an error that does not say whether the write landed. It may
 *   have landed, or may land later.
 */
export type Outcome<T> =
  | { readonly kind: "ok"; readonly value: T }
  | { readonly kind: "conflict"; readonly lastRevision?: number }
  | { readonly kind: "unknown"; readonly reason: string };

/** What a key of the lease bucket holds. */
export type EntryRead =
  | { readonly kind: "none" }
  /** Deleted: a create must expect this revision. */
  | { readonly kind: "tombstone"; readonly revision: number }
  | {
    readonly kind: "entry";
    readonly revision: number;
    readonly node: string;
    /** Null when written by a program that sends no headers. */
    readonly incarnation: string | null;
    readonly address: string | null;
  };

/** The newest tenure record of a store with its revision in the tenures bucket; 0 where none is. */
export interface TenureRead {
  readonly revision: number;
  /** Null where there is none, or what is there is not a tenure record. */
  readonly record: TenureRecord | null;
}
