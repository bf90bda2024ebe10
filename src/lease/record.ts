/**
 * The record that opens a tenure: read the last one, decide what is owed, write our own over it.
 * No grant is made before it is acknowledged.
 * @module
 */
import { STALE } from "./release.ts";
import type { LeaseContext } from "./lease_context.ts";
import type { LeaseEvent, LeaseOutput, LeaseState, Ours } from "./state.ts";
import { succession, type TenureRecord } from "./tenure.ts";
import { MAX_TTL_MS } from "./timing.ts";

/**
 * The newest tenure record was read: decide what we owe, and write our own over it by
 * compare-and-set. The decision is kept in `graceUntilMs`, which only grows, so that a repeated
 * reading (which may then find our own record) cannot take it back.
 */
export function onRecordRead(
  before: Ours,
  event: Extract<LeaseEvent, { type: "tenure_read" }>,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  const { outcome } = event;
  if (outcome.kind !== "ok") return retryRecord(before, outcome, nowMs, context, out);
  const { record, revision } = outcome.value;
  const state = asHeir(before, record, context);
  const ownAlready = record?.incarnation === context.incarnation && record.epoch === state.epoch;
  const owed = ownAlready ? "clean" : succession(
    record,
    state.epoch,
    (incarnation) => isOurs(incarnation, state, context),
  );
  if (owed === "stale" && context.rules.epochFloor) {
    const recorded = (record as TenureRecord).epoch;
    // Whatever is in flight was sent before the record was read.
    const fromSeq = state.seq + 1;
    return {
      ...state,
      again: true,
      record: { at: "suspect", recorded, fromSeq },
    };
  }
  if (record === null && isUnseen(state, nowMs, context)) {
    return { ...state, record: { at: "waiting", retryAtMs: nowMs + UNSEEN_RETRY_MS } };
  }
  const displaced = owed === "grace" || (record === null && isUnexplained(state, context));
  const theirTtlMs = record?.ttlMs ?? 0;
  const owing = owe(state, { displaced, theirTtlMs }, context, out);
  const next = awaitClients(owing, theirTtlMs, context);
  const seq = next.seq + 1;
  out.push({
    type: "put_tenure",
    seq,
    expect: revision,
    epoch: next.epoch,
    acquiredAtMs: next.acquiredAtMs,
    released: null,
    owedMs: passedOnMs(next, context),
  });
  return { ...next, seq, record: { at: "writing", seq, expect: revision } };
}

/**
 * Our entry was renewed. If that was after a record of a newer epoch had been read, nobody has
 * written the entry between the two: so the newer epoch is of a past that the coordinator has lost.
 */
export function onRenewed(state: Ours, seq: number, out: LeaseOutput[]): Ours {
  const { record, epoch } = state;
  if (record.at !== "suspect" || seq < record.fromSeq) return state;
  out.push({ type: "stale", epoch, recorded: record.recorded });
  return { ...state, releaseReason: STALE };
}

/** How often the record is read again while the buckets are unseen, and for how long before that counts. */
const UNSEEN_RETRY_MS = 100;
const UNSEEN_MS = 1_500;

/**
 * Whether to wait for what a look at the buckets shows before it is decided what an acquisition without
 * any record owes. Mostly that is a round trip away; whoever waits for the store gets an answer in time.
 */
function isUnseen({ acquiredAtMs }: Ours, nowMs: number, { remadeUntilMs }: LeaseContext): boolean {
  return remadeUntilMs === Infinity && nowMs < acquiredAtMs + UNSEEN_MS;
}

/**
 * No record at all: a clean first start, unless somebody was seen to hold the store, or the buckets
 * were lost with their records a moment ago.
 */
function isUnexplained(state: Ours, context: LeaseContext): boolean {
  return context.rules.stranger &&
    (state.seen || state.acquiredAtMs < (context.remadeUntilMs ?? 0));
}

/**
 * An entry of our own that we did not know of can be an adoption whose acknowledgement was missed:
 * then we are the heir of whoever is still on record, and its clients are awaited all the same.
 */
function asHeir(state: Ours, record: TenureRecord | null, context: LeaseContext): Ours {
  if (state.claim !== "own" || record === null || record.released_at !== undefined) return state;
  const inheritance = context.inherits(record.incarnation);
  if (inheritance === null) return state;
  const claim = inheritance.clientsGone ? "inherited" : "inherited_owing";
  return { ...state, claim, heirOf: record.incarnation };
}

function isOurs(incarnation: string, state: Ours, context: LeaseContext): boolean {
  if (incarnation === context.incarnation) return true;
  // Only while adopting its entry: then nobody held the store in between. What its clients are owed,
  // if they still live, is another matter.
  return state.heirOf !== null && context.inherits(incarnation) !== null;
}

/**
 * The displaced holder may have gone by a longer TTL than ours: one that was made smaller since, by restarting
 * all agents or by a bucket made again. Its grants live as long as they were told.
 */
function owe(
  state: Ours,
  { displaced, theirTtlMs }: { displaced: boolean; theirTtlMs: number },
  context: LeaseContext,
  out: LeaseOutput[],
): Ours {
  const { rules, timing: { graceMs, graceFollowsTtl } } = context;
  if (!rules.grace) return state;
  const wholeMs = graceFollowsTtl ? Math.max(graceMs, theirTtlMs) : graceMs;
  const fullMs = state.acquiredAtMs + wholeMs;
  const owes = displaced || (state.stranger && rules.stranger);
  const earlierMs = state.awaited?.owedUntilMs ?? state.graceUntilMs;
  const carriedMs = rules.graceCarried ? carried(earlierMs, state, wholeMs) : 0;
  const graceUntilMs = Math.max(owes ? fullMs : 0, carriedMs);
  if (graceUntilMs > state.acquiredAtMs) {
    out.push({ type: "remember_grace", untilMs: graceUntilMs });
  }
  return { ...state, graceUntilMs, awaited: null };
}

/** What a grace that is not a set one is passed on as, to whoever may displace us within it. */
function passedOnMs({ graceUntilMs, acquiredAtMs }: Ours, { timing }: LeaseContext): number {
  return timing.graceFollowsTtl ? Math.max(0, graceUntilMs - acquiredAtMs) : 0;
}

/**
 * Of a grace that was owed before, what is owed still: a whole one where nobody knows how much, as after a
 * reboot. Who owed it told in the record how long it was.
 */
function carried(untilMs: number, { acquiredAtMs }: Ours, wholeMs: number): number {
  if (untilMs === Infinity) return acquiredAtMs + wholeMs;
  // Of a TTL that was longer than ours, perhaps; but the host's memory may be damaged.
  return Math.min(untilMs, acquiredAtMs + MAX_TTL_MS);
}

/**
 * Has the grace last while clients of an earlier incarnation may write: a whole one, and in any case
 * until their deadlines, which taking its entry over did not shorten. It is not remembered: the
 * journal that tells of these clients is.
 */
function awaitClients(state: Ours, theirTtlMs: number, { timing }: LeaseContext): Ours {
  const { claim, heirOf } = state;
  if (claim !== "inherited_owing" || heirOf === null) return state;
  const untilMs = state.acquiredAtMs + Math.max(timing.graceMs, timing.ttlMs, theirTtlMs);
  return {
    ...state,
    graceUntilMs: Math.max(state.graceUntilMs, untilMs),
    awaited: {
      incarnation: heirOf,
      lookAtMs: state.acquiredAtMs,
      owedUntilMs: state.graceUntilMs,
    },
  };
}

/** Our record was written, or was not. */
export function onRecordWritten(
  state: Ours,
  event: Extract<LeaseEvent, { type: "tenure_put" }>,
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): LeaseState {
  const { outcome } = event;
  if (outcome.kind !== "ok") return retryRecord(state, outcome, nowMs, context, out);
  const graceMs = Math.max(0, state.graceUntilMs - nowMs);
  out.push({ type: "acquired", epoch: state.epoch, graceMs });
  return { ...state, record: { at: "done", revision: outcome.value } };
}

/** A conflict is explained by reading again, at once; an unknown outcome after a pause. */
function retryRecord(
  state: Ours,
  outcome: { readonly kind: "conflict" } | { readonly kind: "unknown"; readonly reason: string },
  nowMs: number,
  context: LeaseContext,
  out: LeaseOutput[],
): Ours {
  if (outcome.kind === "conflict") return { ...state, record: { at: "waiting", retryAtMs: nowMs } };
  out.push({ type: "unreachable", reason: outcome.reason });
  return {
    ...state,
    record: { at: "waiting", retryAtMs: nowMs + context.timing.retryMs },
  };
}
