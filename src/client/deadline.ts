/**
 * The deadline of a grant, as far as this process was told: it moves on with each renewal that it hears
 * of, and comes all the same when it hears of none.
 * @module
 */
import type { GuardResult } from "../socket/protocol.ts";
import type { BootClock } from "./clock.ts";

/** What a deadline is away at most: the agent takes 2 % off, for clocks that run at different rates. */
const LONGEST_OF_TTL = 0.98;
/** The part of the TTL that is left when a write is told to stop. */
const NEAR_OF_TTL = 1 / 3;
/** What the agent sent while this process was busy or stopped is read within that time. */
const READ_WITHIN_MS = 50;

/** What the clock says: `near` is the time to stop. */
export interface Look {
  readonly state: "far" | "near" | "over";
  /** When to look again at the latest; Infinity once it is over. */
  readonly lookInMs: number;
}

/** A deadline. */
export class Deadline {
  readonly #clock: BootClock;
  /** By our clock. */
  #atMs: number;
  /** What takes the agent's deadlines to our clock. */
  readonly #shiftMs: number;
  /**
   * The longest that it was away, which tells the TTL: each confirmation sets it to 98 % of that, less
   * what the coordinator's answer took. So `near` is a little later than the agent's own `expiring`.
   */
  #longestMs = 0;
  /** Since when it is seen to be near; by our clock. */
  #nearSinceMs: number | null = null;

  constructor(
    { remaining_ms, deadline_boot_ms }: Pick<GuardResult, "remaining_ms" | "deadline_boot_ms">,
    clock: BootClock,
  ) {
    this.#clock = clock;
    // Counted from now the rest is too long by what the answer took. On the same clock the deadline
    // itself is exact; in a time namespace of our own it may be anything, so the earlier one counts.
    const fromNowMs = clock.nowMs() + remaining_ms;
    this.#atMs = clock.isBootTime ? Math.min(fromNowMs, deadline_boot_ms) : fromNowMs;
    this.#shiftMs = this.#atMs - deadline_boot_ms;
    this.#moveTo(this.#atMs);
  }

  /** How long it is away for certain, in ms; 0 once it is over. */
  get msLeft(): number {
    return Math.max(0, this.#atMs - this.#clock.slackMs - this.#clock.nowMs());
  }

  /** The agent told another, on its clock. */
  renewed(deadlineBootMs: number): void {
    this.#moveTo(deadlineBootMs + this.#shiftMs);
  }

  /** The agent is asked; the result is to be called with what it says is left. */
  ask(): (remainingMs: number) => void {
    const askedMs = this.#clock.nowMs();
    // The rest was longer when we asked.
    return (remainingMs) => this.#moveTo(askedMs + remainingMs);
  }

  /**
   * What the clock says. An agent that hangs says nothing, so what it would say by the clock is found
   * here. A renewal that lies unread in the socket, because this process was busy or stopped, is not
   * missed: before it is near, it has to have been so for a while in which messages were read.
   */
  look(): Look {
    const { msLeft } = this;
    if (msLeft <= 0) return { state: "over", lookInMs: Infinity };
    const toNearMs = msLeft - this.#longestMs / LONGEST_OF_TTL * NEAR_OF_TTL;
    if (toNearMs > 0) {
      this.#nearSinceMs = null;
      return { state: "far", lookInMs: toNearMs };
    }
    const nowMs = this.#clock.nowMs();
    this.#nearSinceMs ??= nowMs;
    const isRead = nowMs - this.#nearSinceMs >= READ_WITHIN_MS;
    return isRead
      ? { state: "near", lookInMs: msLeft }
      : { state: "far", lookInMs: Math.min(msLeft, READ_WITHIN_MS) };
  }

  #moveTo(toMs: number): void {
    this.#atMs = Math.max(this.#atMs, toMs);
    this.#longestMs = Math.max(this.#longestMs, this.#atMs - this.#clock.nowMs());
  }
}
