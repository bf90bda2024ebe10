/**
 * What the steps of all leases of an agent have in common.
 * @module
 */
import type { Rules } from "./rules.ts";
import type { Inheritance, Writes } from "./state.ts";
import type { Timing } from "./timing.ts";

/** What a step may look at besides state, event and time. */
export interface LeaseContext {
  readonly timing: Timing;
  readonly node: string;
  readonly incarnation: string;
  readonly rules: Rules;
  /**
   * The buckets were lost and made again: until then (boot clock), whoever held a store by the old ones
   * may not know. Infinity where that is not known yet; in the past, or absent: they were not.
   */
  readonly remadeUntilMs?: number;
  /** Whether the setup contradicts the agent: nothing is acquired that could not be granted. Default: no. */
  readonly misconfigured?: boolean;
  /** Whether the connection is known to be up: nothing is sent while it is not. */
  readonly connected: boolean;
  /** Why it is down, in words for a refusal. */
  readonly downReason?: string;
  /** Whether there is no coordinator, so no other node that a write could be sent to. Default: no. */
  readonly alone?: boolean;
  /**
   * Whether an attempt that nobody waits for may be made now. Very many at once would only time
   * each other out; who is told no asks to be called when there is room. Default: always.
   */
  readonly hasRoom?: () => boolean;
  /** So one store tells for those of very many guards that the coordinator is there. */
  readonly writes?: Writes;
  /** What this host's state directory knows of an incarnation; null: nothing, so it is foreign. */
  inherits(incarnation: string): Inheritance | null;
}
