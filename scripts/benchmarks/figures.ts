/**
 * Figures and the small statistics behind them.
 * @module
 */

/** One measured figure; `ratio` is `value / vs`, measured in the same run. */
export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly vs?: number;
}

/** Prints a figure as a line of JSON. */
export function print({ name, value, unit, vs }: Figure): void {
  const ratio = vs === undefined ? {} : { vs: round(vs), ratio: round(value / vs) };
  console.log(JSON.stringify({ name, value: round(value), unit, ...ratio }));
}

/** The value below which `share` of the samples lie. */
export function quantile(samples: readonly number[], share: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

/** Median and 99th percentile of `ours` beside those of `theirs`. */
export function printPair(name: string, ours: readonly number[], theirs: readonly number[]): void {
  for (const [suffix, share] of [["p50", 0.5], ["p99", 0.99]] as const) {
    print({
      name: `${name}_${suffix}`,
      value: quantile(ours, share),
      unit: "us",
      vs: quantile(theirs, share),
    });
  }
}

/** Microseconds that `act` takes. */
export async function timeUs(act: () => Promise<unknown>): Promise<number> {
  const start = Bun.nanoseconds();
  await act();
  return (Bun.nanoseconds() - start) / 1_000;
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}
