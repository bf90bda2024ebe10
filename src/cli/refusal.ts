/**
 * What a refusal tells a person.
 * @module
 */
import type { AgentError } from "../client/mod.ts";

/** The agent's message, and who holds the store where it does not say that itself. */
export function refusalText(error: AgentError): string {
  const message = error.message.replace(/\.$/, "");
  const { holder } = error;
  if (holder === null || message.includes(holder.node)) return message;
  const where = holder.address === null ? "" : ` at ${holder.address}`;
  return `${message} (node ${holder.node}${where} holds it)`;
}

/** The flag with which a refused guard would wait; empty where waiting does not help. */
export function waitHint({ kind }: AgentError, waited: boolean): string {
  if (waited) return "";
  switch (kind) {
    case "not_holder":
      return ". With --wait-lease --wait 1m this command waits for it";
    case "busy":
    case "grace":
      return ". With --wait 30s this command waits for it";
    default:
      return "";
  }
}
