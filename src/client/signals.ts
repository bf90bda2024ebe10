/**
 * Listening to signals that may live for as long as the process: whatever listens to one is known to it
 * until it aborts, so each listener is taken away again. `AbortSignal.any` cannot be.
 *
 * A signal may also be shared by any number of calls, and Node warns of a leak when more than ten listen to
 * one. So it has one listener of ours, which tells the others.
 * @module
 */

/** Who listens to a signal, and how it tells them. */
interface Fan {
  readonly hearers: Set<() => void>;
  readonly tell: () => void;
}

const fans = new WeakMap<AbortSignal, Fan>();

/** Has `heard` called once with the reason of the first that aborts; the result ends that. */
export function onAbort(
  signals: readonly (AbortSignal | undefined)[],
  heard: (reason: unknown) => void,
): () => void {
  const given = signals.filter((signal) => signal !== undefined);
  function stop(): void {
    for (const signal of given) leave(signal, hear);
  }
  function hear(): void {
    stop();
    heard(given.find((signal) => signal.aborted)?.reason);
  }
  const aborted = given.some((signal) => signal.aborted);
  if (aborted) hear();
  else for (const signal of given) join(signal, hear);
  return stop;
}

function join(signal: AbortSignal, hear: () => void): void {
  const fan = fans.get(signal) ?? open(signal);
  fan.hearers.add(hear);
}

function open(signal: AbortSignal): Fan {
  const hearers = new Set<() => void>();
  const fan = {
    hearers,
    tell() {
      for (const hear of hearers) hear();
    },
  };
  fans.set(signal, fan);
  signal.addEventListener("abort", fan.tell);
  return fan;
}

/** The last one takes the listener away. */
function leave(signal: AbortSignal, hear: () => void): void {
  const fan = fans.get(signal);
  if (fan === undefined || !fan.hearers.delete(hear) || fan.hearers.size > 0) return;
  fans.delete(signal);
  signal.removeEventListener("abort", fan.tell);
}
