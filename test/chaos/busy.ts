/**
 * Whether a store was busy: another request held its turn or its lock, or waited before this one.
 * @module
 */
import type { Causes } from "./causes.ts";
import type { EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

/** A wait may end early by a timer's grain, and is noted after the agent was told of it. */
const EARLY_MS = 50;

/**
 * How long what has ended may still keep the lock: its release is read, its process ends, on a busy
 * machine. Where something is wrong with the node, or its wrapper was killed, up to a TTL.
 */
const FREEING_MS = 2_000;

/** What it is judged by. */
export interface Company {
  readonly setup: EventOf<"setup">;
  readonly attempts: readonly Attempt[];
  readonly causes: Causes;
}

/** Whether somebody else was there until the wait was over, on the host or, with shared locks, on any. */
export function wasBusy(attempt: Attempt, refused: EventOf<"refused">, company: Company): boolean {
  const { node, store, t } = refused;
  const askedMs = attempt.ask?.t ?? t;
  const overMs = Math.min(t, askedMs + (attempt.ask?.waitMs ?? 0) - EARLY_MS);
  return company.attempts.some((other) => {
    const at = other.ask ?? other.grant;
    if (at === null || other.id === attempt.id || at.store !== store) return false;
    // The older program knows neither turns nor locks.
    if (company.setup.older?.includes(at.node)) return false;
    if (company.setup.locks === "own" && at.node !== node) return false;
    return at.t <= t && endMsOf(other, at, company) >= Math.max(overMs, askedMs);
  });
}

/** Until when a request may have been in the way, at the latest. */
function endMsOf(
  { refused, endMs, lostWhy, status, ask, spans }: Attempt,
  { node, store }: { readonly node: string; readonly store: string },
  { setup, causes }: Company,
): number {
  const ends = [refused?.t, endMs, ...spans.map(({ toMs }) => toMs)]
    .filter((end) => end !== undefined && end !== null);
  if (ends.length === 0) return Infinity;
  const lastMs = Math.max(...ends);
  const killed = ask?.via === "guard" && refused === null && status !== 0;
  const late = killed || lostWhy !== null ||
    causes.around({ node, store }, lastMs, lastMs).length > 0;
  return lastMs + (late ? setup.ttlMs : FREEING_MS);
}
