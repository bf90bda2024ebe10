/**
 * A store that another node holds: who it is, and when to try again.
 * @module
 */
import { attempt } from "./attempt.ts";
import type { Holder } from "./errors.ts";
import type { LeaseContext } from "./lease_context.ts";
import type {
  Acquiring,
  Claim,
  Common,
  Foreign,
  FoundEntry,
  Idle,
  LeaseEvent,
  LeaseOutput,
  LeaseState,
} from "./state.ts";
import type { TenureRecord } from "./tenure.ts";

/** Quick tries after a holder was heard to close its tenure: 2, 4, 8 … ms, a second in all. */
export const EAGER_TRIES = 9;

/** Whether the tenure was cleanly released. */
export function isClosed(record: TenureRecord): boolean {
  return record.released_at !== undefined;
}

/** How we may take over an entry that exists, or null when it is foreign. */
export function claimOn(entry: FoundEntry, context: LeaseContext): Claim | null {
  if (!context.rules.incarnation && entry.node === context.node) return "own";
  if (entry.incarnation === null || entry.node !== context.node) return null;
  if (entry.incarnation === context.incarnation) return "own";
  const inheritance = context.inherits(entry.incarnation);
  if (inheritance === null) return null;
  return inheritance.clientsGone ? "inherited" : "inherited_owing";
}

/**
 * What a read shows is remembered whenever its answer comes, also one that nobody waits for any more, as
 * after a pause: whoever held the store then may be owed a grace by our next tenure. Or by this one, where
 * that is not decided yet.
 */
export function remember<S extends LeaseState>(
  state: S,
  event: LeaseEvent,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): S {
  if (event.type !== "entry_read" || event.outcome.kind !== "ok") return state;
  const found = event.outcome.value;
  if (found.kind !== "entry" || claimOn(found, context) !== null) return state;
  if (state.phase === "ours" && state.record.at === "done") return state;
  const next = haveSeen(state, found, out);
  // Decided without it: decide again.
  if (next === state || next.phase !== "ours" || next.record.at !== "writing") return next;
  return { ...next, record: { at: "waiting", retryAtMs: nowMs } };
}

/** Somebody else was seen to hold the store. */
function haveSeen<S extends Common>(state: S, found: FoundEntry, out: LeaseOutput[]): S {
  const stranger = state.stranger || found.incarnation === null;
  if (state.seen && stranger === state.stranger) return state;
  if (stranger && !state.stranger) out.push({ type: "remember_stranger" });
  return { ...state, seen: true, stranger };
}

/** A foreign entry was found: ask for its tenure record, to name its epoch. */
export function exploreForeign(
  from: Common,
  found: FoundEntry,
  past: { known: Foreign | null; eager: number },
  out: LeaseOutput[],
): Acquiring {
  const begun = attempt(haveSeen(from, found, out), "tenure");
  out.push({ type: "read_tenure", seq: begun.seq });
  return { ...begun, ...past, found };
}

/** The foreign entry is explained as far as it can be. */
export function becomeForeign(
  state: Acquiring,
  record: TenureRecord | null,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): Foreign {
  const found = state.found as FoundEntry;
  const theirs = record !== null && record.incarnation === found.incarnation ? record : null;
  const same = state.known !== null && state.known.incarnation === found.incarnation &&
    state.known.holder.node === found.node;
  const holder: Holder = {
    node: found.node,
    address: found.address,
    epoch: theirs?.epoch ?? (same ? state.known!.holder.epoch : null),
    since: theirs?.acquired_at ?? (same ? state.known!.holder.since : null),
  };
  const renews = same && state.known!.revision !== found.revision;
  // Closed already: its entry is about to be deleted.
  const eager = theirs !== null && isClosed(theirs) ? EAGER_TRIES : state.eager;
  out.push({ type: "foreign", duplicate: found.node === context.node, renews });
  return {
    phase: "foreign",
    seq: state.seq,
    graceUntilMs: state.graceUntilMs,
    stranger: state.stranger,
    seen: true,
    holder,
    incarnation: found.incarnation,
    revision: found.revision,
    seenAtMs: nowMs,
    retryAtMs: nowMs + (eager > 0 ? 1 : context.timing.renewEveryMs),
    eager,
  };
}

/** Refused again at the revision we knew: the same holder, which did not renew in between. */
export function stayForeign(
  known: Foreign,
  from: Acquiring,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): Foreign {
  out.push({ type: "foreign", duplicate: known.holder.node === context.node, renews: false });
  const silentMs = nowMs - known.seenAtMs;
  if (isStuck(silentMs, context)) out.push({ type: "stuck", forMs: silentMs });
  const eager = Math.max(0, from.eager - 1);
  return {
    ...known,
    seq: from.seq,
    stranger: from.stranger,
    seen: true,
    eager,
    retryAtMs: eager > 0
      ? nowMs + 2 ** (EAGER_TRIES - eager)
      : nowMs + foreignPauseMs(known, nowMs, context),
  };
}

/**
 * How long until the next try. A holder renews every third of a TTL, so one that has been silent
 * for two thirds is probably gone: from then on the entry is tried often, by timer, because an
 * entry's ageing out gives no event (nats-server#6710).
 */
function foreignPauseMs(known: Foreign, nowMs: number, context: LeaseContext): number {
  const { ttlMs, renewEveryMs } = context.timing;
  const silentMs = nowMs - known.seenAtMs;
  if (silentMs >= (2 / 3) * ttlMs) return Math.min(250, ttlMs / 12);
  return Math.min(renewEveryMs, Math.max(1, (2 / 3) * ttlMs - silentMs));
}

/**
 * Whether a store is refused to us for so long without a renewal that something is wrong with the
 * coordinator: an entry nobody renews is gone a TTL later, or a little more.
 */
export function isStuck(silentMs: number, { timing }: LeaseContext): boolean {
  // Entries age out a little late, and a grace of 0 leaves no room for that.
  return silentMs > 1.5 * timing.ttlMs + timing.graceMs;
}

/** Whether it is another's or nobody's, and nothing is under way. */
export function isAside(lease: LeaseState): lease is Idle | Foreign {
  return lease.phase === "idle" || lease.phase === "foreign";
}

/** Whoever holds it, as far as known, if it is not ours. */
export function knownHolder(lease: LeaseState): Holder | null {
  if (lease.phase === "foreign") return lease.holder;
  return lease.phase === "acquiring" ? lease.known?.holder ?? null : null;
}
