/**
 * What the wrapper tells its watchdog: the whole state, a line each time something changed.
 * @module
 */
import type { LockMark } from "./lock_trail.ts";
import type { Hold } from "./plan.ts";

/** Everything the watchdog needs to end the command in the wrapper's stead. */
export interface WatchdogState {
  readonly mark: string;
  /** Null before the command was started. */
  readonly group: number | null;
  /** The directory of the command's cgroup; null where it has none. */
  readonly cgroup: string | null;
  /** As in `Target`. */
  readonly lock: LockMark | null;
  /** Null before the grant. */
  readonly hold: Hold | null;
  /** How to prove that the grant lives on while the wrapper is stopped; null where it cannot be. */
  readonly grant:
    | { readonly socket: string; readonly token: string; readonly store: string }
    | null;
  /** The command ended, and all is done. */
  readonly done: boolean;
  /** Each higher number asks for a report. */
  readonly question: number;
}

/** What the watchdog says, a line each: before it asks the command to end, and when asked. */
export interface WatchdogReport {
  /** The question that it answers; null when it speaks first. */
  readonly answer: number | null;
  /** The hold as it stays, if the command was asked to end; else null. */
  readonly ending: Hold | null;
}

/**
 * The state as of the watchdog's start, in its environment: so there is no moment at which it runs but
 * does not know. Not among its arguments, which everybody can see.
 */
export const STATE_VARIABLE = "ZIT_WATCHDOG_STATE";

/** The hidden command that runs the watchdog. */
export const WATCHDOG_COMMAND = "guard-watchdog";

/** The lines of a stream, each without its end. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream) {
    const lines = (text + decoder.decode(chunk, { stream: true })).split("\n");
    text = lines.pop()!;
    yield* lines;
  }
}
