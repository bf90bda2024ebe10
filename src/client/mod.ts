/**
 * The client: what programs import to talk to the agent. Needs nothing but a runtime with `node:net`
 * (Bun, Node 20 or newer, Deno).
 *
 * @example
 * ```ts
 * const agent = await connect();
 * const { token, epoch } = await agent.call("guard", { store: "project", wait_ms: 5_000 });
 * // … write; before making it visible:
 * await agent.call("verify", { token, store: "project" });
 * await agent.call("release", { token });
 * await agent.close();
 * ```
 * @module
 */
export { connect, type ConnectOptions, openSocket } from "./connect.ts";
export { type CallOptions, Connection, type ConnectionOptions } from "./connection.ts";
export { AgentError, type AgentErrorOptions, AgentUnreachable } from "./errors.ts";
export { defaultSocketPath, SYSTEM_SOCKET_PATH } from "./socket_path.ts";
export type * from "../socket/protocol.ts";
