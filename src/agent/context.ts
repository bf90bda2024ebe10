/**
 * What all stores of an agent go by besides what happened to each: the TTL, the connection, the buckets.
 * @module
 */
import { ALL_RULES } from "../lease/rules.ts";
import type { LeaseContext } from "../lease/state.ts";
import { DEFAULT_TTL_MS, timingOf } from "../lease/timing.ts";
import type { BucketsSeen } from "../ports/coordinator.ts";
import type { AgentOptions } from "./types.ts";

type Hooks = Required<Pick<LeaseContext, "hasRoom" | "writes" | "inherits">>;

/** The context of an agent's stores as it is now, and as it becomes. */
export class Context {
  readonly #options: AgentOptions;
  readonly #hooks: Hooks;
  #now: LeaseContext;
  /** When the buckets were last seen to be others; boot clock. */
  #remadeAtMs = -Infinity;
  /** The longest TTL that this agent went by, or the buckets had that were lost: grants may live as long. */
  #longestTtlMs = 0;
  /** Whether nobody knows if they are those of before. */
  #unseen = false;

  constructor(
    options: AgentOptions,
    hooks: Hooks,
  ) {
    this.#options = options;
    this.#hooks = hooks;
    this.#now = this.#by(options.ttlMs ?? DEFAULT_TTL_MS, { connected: false });
  }

  get now(): LeaseContext {
    return this.#now;
  }

  setTtl(ttlMs: number): void {
    this.#longestTtlMs = Math.max(this.#longestTtlMs, ttlMs);
    this.#now = this.#by(ttlMs, this.#now);
  }

  setConnected(connected: boolean): void {
    this.#now = { ...this.#now, connected };
  }

  /** Why the coordinator cannot be used, in words for refusals. */
  setDownReason(downReason: string | undefined): void {
    this.#now = { ...this.#now, downReason };
  }

  /**
   * Where the buckets are others, whoever held by the old ones believes in them for a TTL at most; twice
   * that, because they were lost some time before it was missed. While they are unseen they may be others,
   * too: a store that is given a grace for that keeps it, also when they turn out to be those of before.
   */
  setBuckets(seen: BucketsSeen, nowMs: number, ttlBeforeMs: number): void {
    this.#unseen = seen === "unseen";
    if (seen === "others" || seen === "forgotten") {
      this.#remadeAtMs = nowMs;
      this.#longestTtlMs = Math.max(this.#longestTtlMs, ttlBeforeMs);
    }
    this.#now = this.#by(this.#now.timing.ttlMs, this.#now);
  }

  #by(
    ttlMs: number,
    { connected, downReason }: Pick<LeaseContext, "connected" | "downReason">,
  ): LeaseContext {
    const { graceMs, interestMs, node, incarnation, rules = ALL_RULES } = this.#options;
    return {
      timing: timingOf({ ttlMs, graceMs, interestMs, longestTtlMs: this.#longestTtlMs }),
      node,
      incarnation,
      rules,
      connected,
      downReason,
      remadeUntilMs: this.#unseen
        ? Infinity
        : this.#remadeAtMs + 2 * Math.max(ttlMs, this.#longestTtlMs),
      ...this.#hooks,
    };
  }
}
