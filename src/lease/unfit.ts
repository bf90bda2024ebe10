/**
 * A store that this host cannot write although it could hold the lease: its lock file cannot be used,
 * its directory is missing, or its disk has seen a newer epoch (gates 5 and 6).
 *
 * Holding it would only keep hosts out that can write it. So the lease is let go, and nothing is
 * acquired while the disk is as it was found: each attempt asks the coordinator who holds the store, and
 * where nobody does, looks at the file. No guard is refused for what was so before: whoever mends the
 * file is granted the next guard.
 * @module
 */
import type { Refusal } from "./errors.ts";
import { isAside } from "./foreign.ts";
import * as refuse from "./refusals.ts";
import { STALE } from "./release.ts";
import type { UnfitFor } from "./state.ts";
import type { LockLook, LockRefusal } from "./store_events.ts";
import type { Moment, StoreState, Unfit } from "./store_state.ts";

/** A guard was stopped at gate 5 or 6 by the disk, not by another process. */
export function beUnfit(m: Moment, why: UnfitFor, refusal: Refusal): void {
  const { store, nowMs, context } = m;
  const epoch = store.lease.phase === "ours" ? store.lease.epoch : 0;
  setUnfit(m, { why, refusal, epoch, againAtMs: nowMs + context.timing.retryMs });
}

function setUnfit(m: Moment, unfit: Unfit): void {
  const { why } = unfit;
  if (m.store.unfit?.why !== why) m.out.push({ type: "note", note: { type: "unfit", why } });
  m.store.unfit = unfit;
  // Nothing is there to be written: nobody who asked meant this host to hold it.
  if (why === "unknown_store") m.store.lastAskedMs = -Infinity;
}

/** The disk is in order, as far as can be seen. */
export function beFit(m: Moment): void {
  if (m.store.unfit === null) return;
  m.store.unfit = null;
  m.out.push({ type: "note", note: { type: "unfit", why: null } });
}

/** Asks for the lease now, if it is not ours and nothing is under way. */
export function seekLease(m: Moment): void {
  const { lease, unfit } = m.store;
  if (!m.context.connected || !isAside(lease)) return;
  m.stepLease({ type: unfit === null ? "acquire" : "look" });
}

/**
 * The lock file of an unfit store was looked at. True: the store is unfit still, and whoever waits for
 * it is to be told why.
 */
export function staysUnfit(m: Moment, look: LockLook): boolean {
  const { unfit, lease } = m.store;
  if (unfit === null) return false;
  const fault = findFault(m, look);
  if (fault === null) beFit(m);
  else if (lease.phase === "ours") beUnfit(m, fault.why, fault.refusal);
  else setUnfit(m, { ...unfit, ...fault });
  if (!isAside(lease)) return false;
  // Whether the coordinator gives a higher epoch than the disk's by now, only a new one tells.
  if (fault !== null && (fault.why !== "fence" || m.nowMs < unfit.againAtMs)) return true;
  m.stepLease({ type: "acquire" });
  return false;
}

/** Why a lease that nobody wants here is given back. */
export function releaseReason({ blocked, lease, unfit }: StoreState): string {
  const inThis = lease.phase === "ours" && lease.epoch === unfit?.epoch;
  // Somebody may have been given the newer epoch, and write: whoever comes next owes the grace.
  if (inThis && unfit.why === "fence") return STALE;
  return blocked?.reason ?? (inThis ? "unusable" : "idle");
}

function findFault(
  { store: { code, lease, unfit } }: Moment,
  { failure, onDisk }: LockLook,
): { why: UnfitFor; refusal: Refusal } | null {
  if (failure !== null && failure.kind !== "busy") {
    return { why: faultOf(failure), refusal: refuse.lockRefusal(code, failure) };
  }
  // Others may have held it since, in their turn: what they left on disk is no newer past.
  if (lease.phase !== "ours" && unfit!.why !== "fence") return null;
  const ours = lease.phase === "ours" ? lease.epoch : unfit!.epoch;
  if (onDisk === null || onDisk.epoch <= ours) return null;
  return { why: "fence", refusal: refuse.staleEpoch(code, ours, onDisk) };
}

/** What a lock that could not be had says of the disk. */
export function faultOf({ kind }: Exclude<LockRefusal, { kind: "busy" }>): UnfitFor {
  return kind === "unknown_store" ? "unknown_store" : "lock_file";
}
