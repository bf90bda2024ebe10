/**
 * How long a caller waits.
 * @module
 */
import { InvalidError } from "./errors.ts";
import { onAbort } from "./signals.ts";

/** What ends a wait. */
export interface Bounds {
  /** It throws what the signal aborted with. */
  readonly signal?: AbortSignal;
  /** In ms. Default: for ever. */
  readonly timeoutMs?: number;
  /**
   * When the wait began, on the clock of `performance.now()`: for what takes several steps, each of which is
   * given the bounds of the whole. Default: now.
   */
  readonly sinceMs?: number;
}

/** The longest that a timer can wait: 24.8 days, and what the agent takes for a longer wait. */
export const MAX_TIMER_MS = 2_147_483_647;

/**
 * Refuses times that the agent would, by the names that the caller knows them by: Infinity, say, is null in
 * JSON.
 *
 * @throws {InvalidError}
 */
export function checkMs(times: Readonly<Record<string, number | undefined>>): void {
  for (const [name, ms] of Object.entries(times)) {
    if (ms === undefined || (typeof ms === "number" && ms >= 0 && ms <= MAX_TIMER_MS)) continue;
    throw new InvalidError(
      `Cannot take ${name}: ${ms}; give milliseconds, from 0 to ${MAX_TIMER_MS} (24.8 days)`,
    );
  }
}

/**
 * Has `over` called once, with the signal's reason or with what `late` gives when the time is up; the
 * result ends that.
 */
export function onEnd(
  { signal, timeoutMs = Infinity, sinceMs }: Bounds,
  late: () => unknown,
  over: (reason: unknown) => void,
): () => void {
  const leftMs = timeoutMs - (sinceMs === undefined ? 0 : performance.now() - sinceMs);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stopListening = onAbort([signal], (reason) => {
    clearTimeout(timer);
    over(reason);
  });
  if (leftMs <= MAX_TIMER_MS && !signal?.aborted) {
    // Deno warns of a time that is past.
    timer = setTimeout(() => {
      stopListening();
      over(late());
    }, Math.max(0, leftMs));
  }
  return () => {
    clearTimeout(timer);
    stopListening();
  };
}

/** What `promise` comes to, unless a bound is met before: then that is thrown. */
export function within<T>(promise: Promise<T>, bounds: Bounds, late: () => unknown): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = onEnd(bounds, late, reject);
    promise.then(resolve, reject).finally(stop);
  });
}
