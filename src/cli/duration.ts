/**
 * Durations as people write them: `500ms`, `15s`, `2m`, `1h`, `1m30s`, `1.5s`, and `0`.
 * @module
 */
import { UNIT_MS } from "../lease/duration_text.ts";

export { formatDuration, roughDuration } from "../lease/duration_text.ts";

/** The longest duration, in milliseconds: what a timer can wait, a little under 25 days. */
export const MAX_DURATION_MS = 2 ** 31 - 1;

const WHOLE = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/;
const PART = /(\d+(?:\.\d+)?)(ms|s|m|h)/g;

/**
 * Parses a duration to whole milliseconds.
 *
 * @throws {RangeError} where `text` is no duration, is finer than a millisecond or too long. A bare
 * number is refused because its unit would be a guess; `0` needs none.
 */
export function parseDurationMs(text: string): number {
  if (text === "0") return 0;
  if (!WHOLE.test(text)) throw new RangeError(`Cannot read the duration "${text}": ${hint(text)}`);
  let sumMs = 0;
  for (const [, number, unit] of text.matchAll(PART)) sumMs += Number(number) * UNIT_MS[unit!]!;
  const ms = Math.round(sumMs);
  // 1.1 * 60_000 is not a whole number in binary, so "whole" allows for the last bits.
  if (Math.abs(sumMs - ms) > 1e-6) {
    throw new RangeError(`Cannot use the duration "${text}": it is finer than a millisecond`);
  }
  if (ms > MAX_DURATION_MS) {
    throw new RangeError(`Cannot use the duration "${text}": the longest is 24 days`);
  }
  return ms;
}

function hint(text: string): string {
  if (/^\d+(\.\d+)?$/.test(text)) return `say its unit, as in ${text}s or ${text}ms`;
  if (text.startsWith("-")) return "it cannot be negative";
  return "write it as in 500ms, 15s, 2m, 1h or 1m30s";
}
