/**
 * What a call can fail with: a class for each kind, so that programs can catch what they handle.
 * @module
 */
import { type Holder, type Kind, KINDS } from "../lease/errors.ts";
import type { ErrorObject } from "../socket/protocol.ts";

/** EX_SOFTWARE: agent and client do not understand each other, or the agent failed inside. */
const EXIT_INTERNAL = 70;

/**
 * Kinds that pass without anybody's doing. Not `lost`: whether the write that ran took effect has to
 * be looked up before it is made again.
 */
const RETRYABLE: ReadonlySet<string> = new Set<Kind>([
  "unavailable",
  "not_holder",
  "grace",
  "busy",
  "draining",
  "limit",
]);

/** What {@linkcode AgentError} carries besides its message. */
export interface AgentErrorOptions {
  /** `internal`: an error of JSON-RPC itself, such as an unknown method or a fault in the agent. */
  readonly kind: Kind | "internal";
  /** The JSON-RPC code; default that of the kind. */
  readonly code?: number;
  readonly retryAfterMs?: number | null;
  readonly holder?: Holder | null;
  readonly cause?: unknown;
}

/** The agent refused, or failed. The message is a sentence for a person. */
export class AgentError extends Error {
  override readonly name: string = "AgentError";
  readonly kind: Kind | "internal";
  readonly code: number;
  /** The exit status of a program that ends because of it. */
  readonly exit: number;
  /**
   * Whether the same call, unchanged, may succeed later. For `not_holder`: here, once the lease is
   * given up; at {@linkcode holder}, now.
   */
  readonly retryable: boolean;
  /** How soon another try may succeed, where the agent knows; else null. */
  readonly retryAfterMs: number | null;
  /** Who holds the store, where that is why and it is known; else null. */
  readonly holder: Holder | null;

  constructor(message: string, options: AgentErrorOptions) {
    super(message, { cause: options.cause });
    this.kind = options.kind;
    this.code = options.code ?? (options.kind === "internal" ? -32603 : KINDS[options.kind].code);
    this.exit = options.kind === "internal" ? EXIT_INTERNAL : KINDS[options.kind].exit;
    this.retryable = RETRYABLE.has(options.kind);
    this.retryAfterMs = options.retryAfterMs ?? null;
    this.holder = options.holder ?? null;
  }
}

/** What the error of one kind is made of besides its message. */
export type KindErrorOptions = Omit<AgentErrorOptions, "kind">;

/** The class of the errors of one kind. */
interface KindErrorClass<K extends Kind> {
  new (message: string, options?: KindErrorOptions): AgentError & { readonly kind: K };
}

function classOf<K extends Kind>(kind: K, name: string): KindErrorClass<K> {
  return class extends AgentError {
    override readonly name = name;
    declare readonly kind: K;

    constructor(message: string, options: KindErrorOptions = {}) {
      super(message, { ...options, kind });
    }
  };
}

/** The coordinator cannot be reached. */
export class UnavailableError extends classOf("unavailable", "UnavailableError") {}
/** Another node holds the store: `holder` says which, where it is known. */
export class NotHolderError extends classOf("not_holder", "NotHolderError") {}
/** This node holds the store, but a displaced holder may still be finishing. */
export class GraceError extends classOf("grace", "GraceError") {}
/** The turn or the lock was not free within the wait. */
export class BusyError extends classOf("busy", "BusyError") {}
/** The agent is shutting down, or stepped down from the store. */
export class DrainingError extends classOf("draining", "DrainingError") {}
/** The lease went while the write ran. */
export class LostError extends classOf("lost", "LostError") {}
/** There is no such grant, or it is not for this store. */
export class NoTokenError extends classOf("no_token", "NoTokenError") {}
/** There is no directory of this store. */
export class UnknownStoreError extends classOf("unknown_store", "UnknownStoreError") {}
/** The disk has seen a newer epoch. */
export class StaleEpochError extends classOf("stale_epoch", "StaleEpochError") {}
/** This process may not do that. */
export class ForbiddenError extends classOf("forbidden", "ForbiddenError") {}
/** Too many grants, waiters or connections. */
export class LimitError extends classOf("limit", "LimitError") {}
/** The bucket or the setup contradicts the agent. */
export class MisconfiguredError extends classOf("misconfigured", "MisconfiguredError") {}
/** A parameter is wrong. */
export class InvalidError extends classOf("invalid", "InvalidError") {}

/** The agent cannot be reached, or went away before it answered: what it did is not known. */
export class AgentUnreachable extends UnavailableError {
  override readonly name = "AgentUnreachable";

  constructor(message: string, cause?: unknown) {
    super(message, { cause });
  }
}

const CLASSES: Record<Kind, new (message: string, options?: KindErrorOptions) => AgentError> = {
  unavailable: UnavailableError,
  not_holder: NotHolderError,
  grace: GraceError,
  busy: BusyError,
  draining: DrainingError,
  lost: LostError,
  no_token: NoTokenError,
  unknown_store: UnknownStoreError,
  stale_epoch: StaleEpochError,
  forbidden: ForbiddenError,
  limit: LimitError,
  misconfigured: MisconfiguredError,
  invalid: InvalidError,
};

/** The error of an answer, as the caller gets it. */
export function agentError(error: ErrorObject): AgentError {
  const { code, message, data } = error;
  const options = { code, retryAfterMs: data?.retry_after_ms, holder: data?.holder };
  // An agent newer than this client may know kinds that it does not.
  const known = data !== undefined && Object.hasOwn(KINDS, data.kind);
  return known
    ? new CLASSES[data.kind](message, options)
    : new AgentError(message, { ...options, kind: "internal" });
}
