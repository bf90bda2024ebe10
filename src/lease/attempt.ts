/**
 * An attempt to become the holder, or to learn who is.
 * @module
 */
import type { Acquiring, Common } from "./state.ts";

/** One that has only begun: with what is known of the store, and nothing of its own. */
export function attempt(from: Common, step: Acquiring["step"]): Acquiring {
  return {
    phase: "acquiring",
    step,
    seq: from.seq + 1,
    graceUntilMs: from.graceUntilMs,
    stranger: from.stranger,
    seen: from.seen,
    claim: "create",
    expect: 0,
    sentAtMs: 0,
    known: null,
    puzzles: 0,
    puzzledAtMs: 0,
    eager: 0,
    found: null,
    heirOf: null,
  };
}
