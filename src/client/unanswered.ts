/**
 * Why a call has no answer.
 * @module
 */
import type { Method } from "../socket/protocol.ts";
import { AgentUnreachable } from "./errors.ts";

/** What is known besides the words. */
export interface UnansweredOptions {
  readonly cause?: unknown;
  /** Whether it may have been done all the same. */
  readonly unknown?: boolean;
}

/** The agent did not answer in time. */
export function silent(path: string, method: Method, timeoutMs: number): AgentUnreachable {
  return new AgentUnreachable(
    `The agent at ${path} did not answer "${method}" within ${timeoutMs} ms: it hangs, or ` +
      "has too much to do; see what it is doing (systemctl status zit-agent)",
    { unknown: true },
  );
}

/** The agent closed the connection. */
export function lost(path: string, options?: UnansweredOptions): AgentUnreachable {
  return new AgentUnreachable(
    `The agent at ${path} closed the connection; see its log (journalctl -u zit-agent)`,
    options,
  );
}

/** We did. */
export function closedHere(path: string, options?: UnansweredOptions): AgentUnreachable {
  return new AgentUnreachable(
    `The connection to the agent at ${path} was closed by this process`,
    options,
  );
}
