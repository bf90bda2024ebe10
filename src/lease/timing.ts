/**
 * Every duration of the lease, derived from the TTL, each with its reason.
 * @module
 */

/** The durations one agent works with. All in milliseconds. */
export interface Timing {
  /** The lease TTL: the bucket's, which is the truth for every node. */
  readonly ttlMs: number;
  /** How long a new holder waits for a displaced one that may still be finishing. */
  readonly graceMs: number;
  /** Whether nobody set that: then a displaced holder that went by a longer TTL is given as much. */
  readonly graceFollowsTtl: boolean;
  /** Taken off every deadline: our clock may run slower than the coordinator's. */
  readonly marginMs: number;
  /** How often a hold is renewed. */
  readonly renewEveryMs: number;
  /** How long after an unknown outcome the write is tried again. */
  readonly retryMs: number;
  /** How long a caller waits for the coordinator before it is told `unavailable`. */
  readonly answerWithinMs: number;
  /** How old the newest write that was answered may be while a guard waits for something else. */
  readonly freshMs: number;
  /** How long after that the answer to another store's write is awaited before a store asks for itself. */
  readonly sharedMs: number;
  /** How long an unasked store stays held. */
  readonly interestMs: number;
}

/** The TTL that a new bucket gets when nobody says otherwise. */
export const DEFAULT_TTL_MS = 15_000;

/** No TTL is longer, a day: what says otherwise is no TTL. */
export const MAX_TTL_MS = 24 * 3_600_000;

/** How long a store is kept after somebody last asked about it, when nobody says otherwise. */
export const DEFAULT_INTEREST_MS = 15 * 60_000;

/**
 * Derives all durations. `graceMs` defaults to the TTL, or to the longest that this agent went by; zero is
 * honoured.
 */
export function timingOf(
  options: { ttlMs: number; graceMs?: number; interestMs?: number; longestTtlMs?: number },
): Timing {
  const { ttlMs, longestTtlMs = 0 } = options;
  return {
    ttlMs,
    graceMs: options.graceMs ?? Math.max(ttlMs, longestTtlMs),
    graceFollowsTtl: options.graceMs === undefined,
    // Two percent covers any oscillator that still keeps time at all (crystals drift by less than
    // 0.01 %, virtual machines under steal by less than 1 %).
    marginMs: ttlMs * 0.02,
    // A third: two renewals may fail outright before the deadline is near.
    renewEveryMs: ttlMs / 3,
    // About a second, yet several tries within a short TTL.
    retryMs: Math.min(1_000, ttlMs / 6),
    // The contract says within 2 s; the rest is for the socket and a busy machine.
    answerWithinMs: 1_800,
    // What a write that is not answered, which takes 1.5 s, leaves of that.
    freshMs: 200,
    sharedMs: 100,
    interestMs: options.interestMs ?? DEFAULT_INTEREST_MS,
  };
}

/**
 * When a hold proven by a write sent at `sentAtMs` ends. It counts from the send: the coordinator
 * starts its own count no earlier than that, so its entry outlives our belief in it.
 */
export function deadlineMs(sentAtMs: number, timing: Timing): number {
  return sentAtMs + timing.ttlMs - timing.marginMs;
}

/** How much renewals of one hold vary, in parts of the renewal interval. */
const JITTER = 0.05;

/**
 * When the hold proven at `sentAtMs` is renewed. Each tenure has its own point in the renewal interval, told
 * by its epoch; it is due when that comes next, give or take a little by the revision, which keeps the core
 * free of randomness. So very many holds are renewed evenly, a few at a time, and are so again one interval
 * after whatever brought them into step: acquired together, renewed together after an outage, or late
 * together. With a jitter alone that takes minutes. A hold that was proven for a guard is renewed sooner
 * than it would have to be, never later.
 */
export function renewalDueMs(
  sentAtMs: number,
  { epoch, revision }: { readonly epoch: number; readonly revision: number },
  timing: Timing,
): number {
  const everyMs = timing.renewEveryMs;
  // Squared, so that the two differ for epochs and revisions that grow alike.
  const jitter = JITTER * (fractionOf(Math.imul(revision, revision)) - 0.5);
  const point = fractionOf(epoch) + jitter;
  // A renewal in time is not due again where the next one's jitter would have it a little later.
  const soonestMs = sentAtMs + JITTER * everyMs;
  const untilMs = (point * everyMs - soonestMs) % everyMs;
  return soonestMs + (untilMs < 0 ? untilMs + everyMs : untilMs);
}

/** A number of [0, 1) for each whole number, far from that of its neighbours. */
function fractionOf(whole: number): number {
  return (Math.imul(whole | 0, 0x9e3779b1) >>> 0) / 0x1_0000_0000;
}
