/**
 * What a call can fail with.
 * @module
 */
import { type Holder, type Kind, KINDS } from "../lease/errors.ts";
import type { ErrorObject } from "../socket/protocol.ts";

/** EX_SOFTWARE: agent and client do not understand each other, or the agent failed inside. */
const EXIT_INTERNAL = 70;

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
  /** How soon another try may succeed, where the agent knows; else null. */
  readonly retryAfterMs: number | null;
  /** Who holds the store, where that is why and it is known; else null. */
  readonly holder: Holder | null;

  constructor(message: string, options: AgentErrorOptions) {
    super(message, { cause: options.cause });
    this.kind = options.kind;
    this.code = options.code ?? (options.kind === "internal" ? -32603 : KINDS[options.kind].code);
    this.exit = options.kind === "internal" ? EXIT_INTERNAL : KINDS[options.kind].exit;
    this.retryAfterMs = options.retryAfterMs ?? null;
    this.holder = options.holder ?? null;
  }
}

/** The agent cannot be reached, or went away before it answered: what it did is not known. */
export class AgentUnreachable extends AgentError {
  override readonly name = "AgentUnreachable";

  constructor(message: string, cause?: unknown) {
    super(message, { kind: "unavailable", cause });
  }
}

/** The error of an answer, as the caller gets it. */
export function agentError(error: ErrorObject): AgentError {
  const { code, message, data } = error;
  // An agent newer than this client may know kinds that it does not.
  const known = data !== undefined && Object.hasOwn(KINDS, data.kind);
  return new AgentError(message, {
    kind: known ? data.kind : "internal",
    code,
    retryAfterMs: data?.retry_after_ms,
    holder: data?.holder,
  });
}
