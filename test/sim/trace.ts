/**
 * The timeline of a run: kept only when asked for, since a seed can always be run again.
 * @module
 */
import type { Scheduler } from "./scheduler.ts";

/** The first revision of a bucket made as the contract says: about the Unix time in milliseconds. */
export const FIRST_REVISION = 1_700_000_000_000;

/** Collects lines. */
export class Trace {
  readonly lines: string[] = [];
  readonly #scheduler: Scheduler;
  readonly on: boolean;

  constructor(scheduler: Scheduler, on: boolean) {
    this.#scheduler = scheduler;
    this.on = on;
  }

  /** Notes what happened to whom. Callers build the text only while the trace is on. */
  add(who: string, what: string): void {
    if (!this.on) return;
    const seconds = (this.#scheduler.nowMs / 1_000).toFixed(3).padStart(8);
    this.lines.push(`${seconds} s  ${who.padEnd(10)} ${what}`);
  }
}

/** A revision as people read it: counted from where a proper bucket starts. */
export function short(revision: number | null): string {
  if (revision === null) return "–";
  return revision >= FIRST_REVISION ? `r${revision - FIRST_REVISION}` : `low${revision}`;
}
