/**
 * How long a caller waits.
 * @module
 */
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
const MAX_TIMER_MS = 2_147_483_647;

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
