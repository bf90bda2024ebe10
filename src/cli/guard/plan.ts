/**
 * When a guarded command must end. Pure: times come in, decisions come out.
 *
 * Both the wrapper and its watchdog decide by this, each by its own reading of the clock.
 * @module
 */

/** What is known of the lease under a running command. Times are CLOCK_BOOTTIME in ms. */
export interface Hold {
  /** Nobody else can hold the store before it; nothing guarded may run after it. */
  readonly deadlineMs: number;
  /** How long before the deadline the command is asked to end. */
  readonly killAfterMs: number;
  /**
   * When the command was asked to end; null while it may run on. From then on the hold stays as it is:
   * what was asked to end ends, whatever becomes of the lease.
   */
  readonly endingSinceMs: number | null;
}

/**
 * So much before the deadline processes are killed, in ms: the kernel and a busy machine take a while
 * to carry it out, and at the deadline it must be over.
 */
const KILL_LEAD_MS = 20;

/** Whether the command may be started, or run on. */
export function mayRun(hold: Hold, nowMs: number): boolean {
  return nowMs < endTimeMs(hold);
}

/** When the command is asked to end. */
export function endTimeMs(hold: Hold): number {
  const { deadlineMs, killAfterMs, endingSinceMs } = hold;
  return Math.min(endingSinceMs ?? deadlineMs - killAfterMs, killTimeMs(hold));
}

/** When whatever still runs is killed. */
export function killTimeMs({ deadlineMs, killAfterMs, endingSinceMs }: Hold): number {
  const lastMs = deadlineMs - KILL_LEAD_MS;
  return endingSinceMs === null ? lastMs : Math.min(endingSinceMs + killAfterMs, lastMs);
}

/** The hold of a command that is asked to end now. */
export function ending(hold: Hold, nowMs: number): Hold {
  return hold.endingSinceMs === null ? { ...hold, endingSinceMs: nowMs } : hold;
}

/** The hold after the lease was renewed. Its deadline only grows: an earlier one is late news. */
export function renewed(hold: Hold, deadlineMs: number): Hold {
  if (hold.endingSinceMs !== null) return hold;
  return { ...hold, deadlineMs: Math.max(hold.deadlineMs, deadlineMs) };
}

/**
 * How long before the deadline to ask: what was wished for, or a third of the TTL. At most half of
 * the TTL, because a lease that is renewed every third as it should comes down to somewhat more
 * than half of it each time.
 */
export function killAfterMs(wishedMs: number | null, ttlMs: number): number {
  return Math.min(wishedMs ?? ttlMs / 3, ttlMs / 2);
}
