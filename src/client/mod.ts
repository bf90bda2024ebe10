/**
 * The client: what programs import to talk to the agent of their host. Needs nothing but a runtime
 * with `node:net` (Bun, Node 20 or newer, Deno); no foreign functions, no dependencies.
 *
 * @example
 * ```ts
 * await using agent = await connect(); // open, it keeps the process from ending
 * await agent.guard("project", { waitMs: 5_000 }, async (token) => {
 *   await prepare(token.signal); // stops when the lease is in danger
 *   await token.verify(); // the commit-point check
 *   await commit(token); // a writing call takes the token: without one it does not compile
 * });
 * ```
 * @module
 */
export { Client, connect } from "./client.ts";
export type { AskOptions, ClientOptions, GuardOptions } from "./options.ts";
export type { HeldView } from "./held_view.ts";
export type { Disconnected, LeaseChange } from "./watch.ts";
export type { Genuine, Token } from "./token.ts";
export { requireToken } from "./require_token.ts";
export { unguarded, unguardedUses } from "./unguarded.ts";
export {
  type BytesOptions,
  type RunOptions,
  type RunResult,
  ZitCli,
  type ZitCliOptions,
} from "./zitcli.ts";
export {
  AgentError,
  type AgentErrorOptions,
  AgentUnreachable,
  BusyError,
  DrainingError,
  ForbiddenError,
  GraceError,
  InvalidError,
  type KindErrorOptions,
  LimitError,
  LostError,
  MisconfiguredError,
  NotHolderError,
  NoTokenError,
  StaleEpochError,
  UnavailableError,
  UnknownStoreError,
} from "./errors.ts";
export type { Holder, Kind } from "../lease/errors.ts";

// The protocol itself, for what the client above does not cover.
export { type ConnectOptions, openConnection } from "./connect.ts";
export type { CallOptions, Connection } from "./connection.ts";
export { defaultSocketPath, SYSTEM_SOCKET_PATH } from "./socket_path.ts";
export type * from "../socket/protocol.ts";
