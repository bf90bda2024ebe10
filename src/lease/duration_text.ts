/**
 * Durations for people: `500ms`, `15s`, `1m30s`, `3d4h`.
 * @module
 */

/** The units, the longest last, in milliseconds. */
export const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

/** Writes a duration as the command line reads it, to the millisecond: `1m30s`. */
export function formatDuration(ms: number): string {
  let rest = Math.round(ms);
  if (rest <= 0) return "0";
  let text = "";
  for (const unit of ["h", "m", "s", "ms"]) {
    const count = Math.floor(rest / UNIT_MS[unit]!);
    if (count > 0) text += `${count}${unit}`;
    rest -= count * UNIT_MS[unit]!;
  }
  return text;
}

/** How long something lasts at most: whole seconds, rounded up. */
export function atMost(ms: number): string {
  return formatDuration(Math.max(1, Math.ceil(ms / UNIT_MS.s!)) * UNIT_MS.s!);
}

const DAY_MS = 24 * UNIT_MS.h;

/** A duration for people who want its size: seconds below an hour, hours from two days on: `3d4h`. */
export function roughDuration(ms: number): string {
  if (ms < 1_000) return "less than 1s";
  const unitMs = ms < UNIT_MS.h ? UNIT_MS.s : ms < 2 * DAY_MS ? UNIT_MS.m : UNIT_MS.h;
  const wholeMs = Math.floor(ms / unitMs) * unitMs;
  if (ms < 2 * DAY_MS) return formatDuration(wholeMs);
  const restMs = wholeMs % DAY_MS;
  return `${Math.floor(wholeMs / DAY_MS)}d${restMs === 0 ? "" : formatDuration(restMs)}`;
}
