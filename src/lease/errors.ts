/**
 * The domain errors of the protocol: one table for their kinds, JSON-RPC codes and exit statuses.
 * @module
 */

/** Every kind of refusal or failure a caller can be told, with its JSON-RPC code and exit status. */
export const KINDS = {
  unavailable: { code: -32000, exit: 69, meaning: "coordinator or agent cannot be reached" },
  not_holder: { code: -32001, exit: 75, meaning: "another node holds it" },
  grace: {
    code: -32002,
    exit: 75,
    meaning: "ours, but a displaced holder may still be finishing",
  },
  busy: { code: -32003, exit: 75, meaning: "turn or lock not free within the wait" },
  draining: { code: -32004, exit: 75, meaning: "agent is shutting down or stepped down" },
  lost: { code: -32005, exit: 79, meaning: "the lease went while the write ran" },
  no_token: { code: -32006, exit: 77, meaning: "no such grant, or not for this store" },
  unknown_store: { code: -32007, exit: 66, meaning: "no such store directory" },
  stale_epoch: { code: -32008, exit: 76, meaning: "the disk has seen a newer epoch" },
  forbidden: { code: -32009, exit: 77, meaning: "this peer may not do that" },
  limit: { code: -32010, exit: 75, meaning: "too many grants, waiters or connections" },
  misconfigured: {
    code: -32011,
    exit: 78,
    meaning: "the bucket or the setup contradicts the agent",
  },
  invalid: { code: -32602, exit: 64, meaning: "bad parameter" },
} as const;

/** A kind of refusal; see {@linkcode KINDS}. */
export type Kind = keyof typeof KINDS;

/** Who holds a store, as far as known. Members are null where nobody said. */
export interface Holder {
  readonly node: string;
  readonly address: string | null;
  /** The revision at which the holder's tenure began; null for a program that records no tenures. */
  readonly epoch: number | null;
  /** When the holder's tenure began, RFC 3339; null where no tenure was recorded. */
  readonly since: string | null;
}

/** A refusal on its way to a caller: what happened, to which store, and what to do next. */
export interface Refusal {
  readonly kind: Kind;
  /** A sentence a person can act on. */
  readonly message: string;
  readonly retryAfterMs?: number;
  readonly holder?: Holder | null;
}
