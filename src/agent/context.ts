/**
 * What all stores of an agent go by besides what happened to each: the TTL, the connection, the buckets.
 * @module
 */
import { ALL_RULES } from "../lease/rules.ts";
import type { LeaseContext } from "../lease/state.ts";
import { DEFAULT_TTL_MS, timingOf } from "../lease/timing.ts";
import type { BucketsSeen } from "../ports/coordinator.ts";
import type { AgentOptions, AgentPorts } from "./types.ts";

type Hooks = Required<Pick<LeaseContext, "hasRoom" | "writes" | "inherits">>;

/** The context of an agent's stores as it is now, and as it becomes. */
export class Context {
  readonly #options: AgentOptions;
  readonly #ports: Pick<AgentPorts, "clock" | "timers">;
  readonly #hooks: Hooks;
  #now: LeaseContext;
  /** When the buckets were last seen to be others; boot clock. */
  #remadeAtMs = -Infinity;
  /** A longer TTL that this agent went by, or that the buckets had which were lost: grants may live by it. */
  #longestTtlMs = 0;
  /** Until when they may; boot clock. */
  #longestUntilMs = -Infinity;
  #ttlKnown = false;
  /** Whether the buckets were not looked at, so that they may be others. */
  #unseen = false;

  constructor(
    options: AgentOptions,
    ports: Pick<AgentPorts, "clock" | "timers">,
    hooks: Hooks,
  ) {
    this.#options = options;
    this.#ports = ports;
    this.#hooks = hooks;
    this.#now = this.#by(options.ttlMs ?? DEFAULT_TTL_MS, { connected: false });
  }

  get now(): LeaseContext {
    return this.#now;
  }

  /** Whether the TTL was told; until then a default stands for it. */
  get ttlKnown(): boolean {
    return this.#ttlKnown;
  }

  /** The TTL was told. What this agent granted by a longer one lives on. */
  setTtl(ttlMs: number): void {
    const { timing } = this.#now;
    if (this.#ttlKnown && ttlMs < timing.ttlMs) this.#outlives(timing.ttlMs);
    this.#ttlKnown = true;
    this.#now = this.#by(ttlMs, this.#now);
  }

  /** Grants by a longer TTL than counts now may be over. */
  #refresh(): void {
    if (this.#ports.clock.bootMs() < this.#longestUntilMs) return;
    this.#longestTtlMs = 0;
    this.#longestUntilMs = -Infinity;
    this.#now = this.#by(this.#now.timing.ttlMs, this.#now);
  }

  /**
   * Nobody believes in a grant for longer than a TTL; twice that, since it may have been given a moment
   * ago.
   */
  #outlives(ttlMs: number): void {
    const { clock, timers } = this.#ports;
    this.#longestTtlMs = Math.max(this.#longestTtlMs, ttlMs);
    const delayMs = 2 * this.#longestTtlMs;
    this.#longestUntilMs = clock.bootMs() + delayMs;
    timers.after(delayMs, () => this.#refresh());
  }

  setMisconfigured(misconfigured: boolean): void {
    this.#now = { ...this.#now, misconfigured };
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
  setBuckets(seen: BucketsSeen, ttlBeforeMs: number): void {
    this.#unseen = seen === "unseen";
    if (seen === "others" || seen === "forgotten") {
      this.#remadeAtMs = this.#ports.clock.bootMs();
      if (ttlBeforeMs > 0) this.#outlives(ttlBeforeMs);
    }
    this.#now = this.#by(this.#now.timing.ttlMs, this.#now);
  }

  #by(
    ttlMs: number,
    { connected, misconfigured, downReason }: Pick<
      LeaseContext,
      "connected" | "misconfigured" | "downReason"
    >,
  ): LeaseContext {
    const { graceMs, interestMs, node, incarnation, rules = ALL_RULES } = this.#options;
    return {
      timing: timingOf({ ttlMs, graceMs, interestMs, longestTtlMs: this.#longestTtlMs }),
      node,
      incarnation,
      rules,
      connected,
      misconfigured,
      downReason,
      remadeUntilMs: this.#unseen
        ? Infinity
        : this.#remadeAtMs + 2 * Math.max(ttlMs, this.#longestTtlMs),
      ...this.#hooks,
    };
  }
}
