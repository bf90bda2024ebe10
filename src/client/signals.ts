/**
 * Listening to signals that may live for as long as the process: whatever listens to one is known to it
 * until it aborts, so each listener is taken away again. `AbortSignal.any` cannot be.
 * @module
 */

/** Has `heard` called once with the reason of the first that aborts; the result ends that. */
export function onAbort(
  signals: readonly (AbortSignal | undefined)[],
  heard: (reason: unknown) => void,
): () => void {
  const given = signals.filter((signal) => signal !== undefined);
  function stop(): void {
    for (const signal of given) signal.removeEventListener("abort", hear);
  }
  function hear(): void {
    stop();
    heard(given.find((signal) => signal.aborted)?.reason);
  }
  const aborted = given.some((signal) => signal.aborted);
  if (aborted) hear();
  else for (const signal of given) signal.addEventListener("abort", hear);
  return stop;
}
