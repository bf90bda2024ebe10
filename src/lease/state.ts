/**
 * The lease of one store: its states, what can happen to it, and what it asks for.
 *
 * A lease never reads a clock and never sends anything. Each step takes the time; because that time
 * was read before the step's effects are carried out, a request's send time noted here is never
 * later than the real one.
 * @module
 */
import type { EntryRead, Outcome, TenureRead } from "./answers.ts";
import type { Holder } from "./errors.ts";
import type { Rules } from "./rules.ts";
import type { TenureRecord } from "./tenure.ts";
import type { Timing } from "./timing.ts";

/** What every state carries. */
export interface Common {
  /** The number of the newest request; an answer to an older one is ignored. */
  readonly seq: number;
  /**
   * No grant before this. It survives the tenure it was set in: a hold lost and taken again during
   * a grace owes the rest of it. Zero when none is owed.
   */
  readonly graceUntilMs: number;
  /** Some foreign entry was seen since our last tenure: without any record, it owes a grace. */
  readonly seen: boolean;
  /** A foreign entry without headers was seen and no grace was served for it since. */
  readonly stranger: boolean;
}

/** We do not hold it, and nothing is under way. */
export interface Idle extends Common {
  readonly phase: "idle";
  /** What a create must expect, as last heard: a tombstone's revision, or 0. */
  readonly expect: number;
  readonly retryAtMs: number;
  /** Creates refused in a row although no entry could be read. */
  readonly puzzles: number;
  /** When the first of them was refused. */
  readonly puzzledAtMs: number;
}

/** Where an attempt to become the holder starts from. */
export type Claim =
  /** No entry, or a tombstone. */
  | "create"
  /** An entry of our own incarnation that we do not believe we hold: a write given up on landed. */
  | "own"
  /** An entry of an earlier incarnation of this host, proven dead, its clients gone. */
  | "inherited"
  /** The same, but clients of it may still run. */
  | "inherited_owing";

/** A create (or adoption) is under way, or its refusal is being explained. */
export interface Acquiring extends Common {
  readonly phase: "acquiring";
  /** "look": only to see who holds it. */
  readonly step: "put" | "look" | "entry" | "tenure";
  readonly claim: Claim;
  readonly expect: number;
  readonly sentAtMs: number;
  /** Whom we knew to hold it before this attempt. */
  readonly known: Foreign | null;
  readonly puzzles: number;
  readonly puzzledAtMs: number;
  /** Quick tries left since the holder was heard to release it. */
  readonly eager: number;
  /** While step is "tenure": the foreign entry found. */
  readonly found: FoundEntry | null;
  /** The earlier incarnation whose entry is claimed; null for none. */
  readonly heirOf: string | null;
}

/** An entry as it was read. */
export type FoundEntry = Extract<EntryRead, { kind: "entry" }>;

/** Another holder has it. */
export interface Foreign extends Common {
  readonly phase: "foreign";
  readonly holder: Holder;
  readonly incarnation: string | null;
  readonly revision: number;
  /** When this revision was first heard of: the entry ages out at most a TTL later. */
  readonly seenAtMs: number;
  readonly retryAtMs: number;
  /** Quick tries left since its holder was heard to release it. */
  readonly eager: number;
}

/** How far the tenure record has come. */
export type RecordStage =
  | { readonly at: "reading"; readonly seq: number }
  | { readonly at: "writing"; readonly seq: number; readonly expect: number }
  | { readonly at: "waiting"; readonly retryAtMs: number }
  /**
   * A record of an epoch not below ours was read: either our entry was displaced since, or the
   * coordinator has gone back in time. A write numbered `fromSeq` or later tells.
   */
  | { readonly at: "suspect"; readonly recorded: number; readonly fromSeq: number }
  /** Acknowledged; `revision` is its key's revision in the tenures bucket. */
  | { readonly at: "done"; readonly revision: number };

/**
 * Clients that an earlier incarnation of this host gave grants may still write: a grace is owed for
 * as long as they live, and for no longer than their deadlines can be.
 */
export interface Awaited {
  /** The incarnation whose entry was adopted. */
  readonly incarnation: string;
  /** When to look again whether they live. */
  readonly lookAtMs: number;
  /** The grace that is owed besides; 0 for none. */
  readonly owedUntilMs: number;
}

/** The entry is ours. Granting also needs the record, the grace and a proof. */
export interface Ours extends Common {
  readonly phase: "ours";
  readonly epoch: number;
  readonly revision: number;
  /** When the newest acknowledged write was sent. */
  readonly provenAtMs: number;
  readonly acquiredAtMs: number;
  readonly claim: Claim;
  readonly heirOf: string | null;
  /** Set while `graceUntilMs` may end early, because the clients it is owed to are gone. */
  readonly awaited: Awaited | null;
  readonly write: { readonly seq: number; readonly sentAtMs: number } | null;
  /** A proof was asked for after the write in flight was sent: another follows it. */
  readonly again: boolean;
  /** When the next write is due. */
  readonly dueAtMs: number;
  /**
   * A write met a conflict: granting stops until the entry was read back (`seq` is the reading's; 0: it
   * is due at `retryAtMs`) and a write on what was read is acknowledged (`seq` -1: that is in flight).
   */
  readonly doubt: { readonly seq: number; readonly retryAtMs: number } | null;
  readonly record: RecordStage;
  /** Set when it is to be released as soon as nothing is in flight. */
  readonly releaseReason: string | null;
}

/** Being given back: first the record is closed, then the entry deleted. */
export interface Releasing extends Common {
  readonly phase: "releasing";
  readonly step: "close" | "delete" | "entry";
  readonly epoch: number;
  readonly revision: number;
  readonly acquiredAtMs: number;
  readonly reason: string;
  /** Whether the record was closed, so that the next holder owes nothing. */
  readonly clean: boolean;
  readonly tries: number;
}

/** The lease of one store. */
export type LeaseState = Idle | Acquiring | Foreign | Ours | Releasing;

/** What can happen to a lease. */
export type LeaseEvent =
  /** Somebody wants it now. */
  | { readonly type: "acquire" }
  /** Somebody wants to know who holds it; it must not become ours. */
  | { readonly type: "look" }
  /** A write sent from now on must prove the hold. */
  | { readonly type: "prove" }
  /** Give it back, for this reason, once nothing is in flight. */
  | { readonly type: "release"; readonly reason: string }
  /** Time has passed. */
  | { readonly type: "tick" }
  /** The connection is back. */
  | { readonly type: "connected" }
  /** A tenure record written by anybody was heard of; a hint. */
  | { readonly type: "tenure"; readonly record: TenureRecord }
  | { readonly type: "put_done"; readonly seq: number; readonly outcome: Outcome<number> }
  | { readonly type: "delete_done"; readonly seq: number; readonly outcome: Outcome<number> }
  | { readonly type: "entry_read"; readonly seq: number; readonly outcome: Outcome<EntryRead> }
  | { readonly type: "tenure_read"; readonly seq: number; readonly outcome: Outcome<TenureRead> }
  | { readonly type: "tenure_put"; readonly seq: number; readonly outcome: Outcome<number> };

/** Why a tenure ended against our will. */
export type LossReason =
  /** The coordinator refused a renewal and the entry is no longer ours. */
  | "conflict"
  /** No renewal was acknowledged before the deadline. */
  | "deadline";

/**
 * What keeps a host from writing a store: its directory is missing, its lock file cannot be opened,
 * locked or written, or carries a newer epoch than the coordinator gives.
 */
export type UnfitFor = "unknown_store" | "lock_file" | "fence";

/** A request to the coordinator. */
export type LeaseRequest =
  | { readonly type: "put_entry"; readonly seq: number; readonly expect: number }
  | { readonly type: "delete_entry"; readonly seq: number; readonly expect: number }
  | { readonly type: "read_entry"; readonly seq: number }
  | { readonly type: "read_tenure"; readonly seq: number }
  | {
    readonly type: "put_tenure";
    readonly seq: number;
    readonly expect: number;
    readonly epoch: number;
    readonly acquiredAtMs: number;
    /** Why the tenure is closed; null while it begins. */
    readonly released: string | null;
    /** How long from its acquisition on it owes a grace; whoever displaces it within that owes as much. */
    readonly owedMs?: number;
  };

/** Something the host should remember across a restart, or forget. */
export type LeaseMemo =
  | { readonly type: "remember_stranger" }
  | { readonly type: "forget_stranger" }
  | { readonly type: "remember_grace"; readonly untilMs: number }
  | { readonly type: "forget_grace" };

/** What others should know. */
export type LeaseNote =
  /** Recorded; no grant for another `graceMs`. */
  | { readonly type: "acquired"; readonly epoch: number; readonly graceMs: number }
  /** The write numbered `seq` was acknowledged in time. */
  | { readonly type: "proven"; readonly seq: number; readonly tookMs: number }
  | { readonly type: "lost"; readonly reason: LossReason; readonly epoch: number }
  | { readonly type: "foreign"; readonly duplicate: boolean; readonly renews: boolean }
  /**
   * Given up. `clean`: its record is closed, so the next holder owes no grace; `deleted`: its entry is
   * gone, and not left to age out.
   */
  | {
    readonly type: "released";
    readonly clean: boolean;
    readonly deleted: boolean;
    readonly epoch: number;
  }
  /** It is refused to us for far longer than an entry that nobody renews can live. */
  | { readonly type: "stuck"; readonly forMs: number }
  /** Who holds it was looked up: nobody. */
  | { readonly type: "vacant" }
  /** This host cannot write it, and lets it go; null: it can again, or nobody asks any more. */
  | { readonly type: "unfit"; readonly why: UnfitFor | null }
  /** A request that a caller may be waiting for had no answer. */
  | { readonly type: "unreachable"; readonly reason: string }
  /** The coordinator has gone back in time: `recorded` is an epoch it once gave. */
  | { readonly type: "stale"; readonly epoch: number; readonly recorded: number };

/** What a step asks for and tells. */
export type LeaseOutput = LeaseRequest | LeaseMemo | LeaseNote;

/** What a host knows of an earlier incarnation under its node name, proven dead. */
export interface Inheritance {
  /** Whether every client that had a grant out is gone. */
  readonly clientsGone: boolean;
}

/** The writes of entries, of all stores together. */
export interface Writes {
  /** When the newest was sent; boot clock. */
  readonly sentMs: number;
  /** When the newest of those that were answered was sent; boot clock. */
  readonly answeredMs: number;
  /** How long answers take, of late. */
  readonly rttMs: number;
}

/** What a step may look at besides state, event and time. */
export interface LeaseContext {
  readonly timing: Timing;
  readonly node: string;
  readonly incarnation: string;
  readonly rules: Rules;
  /**
   * The buckets were lost and made again: until then (boot clock), whoever held a store by the old ones
   * may not know. Infinity where that is not known yet; in the past, or absent: they were not.
   */
  readonly remadeUntilMs?: number;
  /** Whether the setup contradicts the agent: nothing is acquired that could not be granted. Default: no. */
  readonly misconfigured?: boolean;
  /** Whether the connection is known to be up: nothing is sent while it is not. */
  readonly connected: boolean;
  /** Why it is down, in words for a refusal. */
  readonly downReason?: string;
  /**
   * Whether an attempt that nobody waits for may be made now. Very many at once would only time
   * each other out; who is told no asks to be called when there is room. Default: always.
   */
  readonly hasRoom?: () => boolean;
  /** So one store tells for those of very many guards that the coordinator is there. */
  readonly writes?: Writes;
  /** What this host's state directory knows of an incarnation; null: nothing, so it is foreign. */
  inherits(incarnation: string): Inheritance | null;
}
