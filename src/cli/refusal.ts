/**
 * What a refusal tells a person to do.
 * @module
 */
import type { AgentError } from "../client/mod.ts";
import { formatDuration } from "./duration.ts";

/** The agent's message, with the holder and a next step where it does not say them itself. */
export function refusalText(error: AgentError): string {
  const message = error.message.replace(/\.$/, "");
  const { holder } = error;
  const names = holder === null || message.includes(holder.node);
  const where = names ? "" : ` (it is held by ${holder.node}, ${holder.address ?? "no address"})`;
  const next = nextStep(error);
  return `${message}${where}${next === "" ? "" : `. ${next}`}`;
}

function nextStep({ kind, holder, retryAfterMs }: AgentError): string {
  const soon = retryAfterMs === null ? "" : ` in ${formatDuration(retryAfterMs)}`;
  switch (kind) {
    case "not_holder":
      return holder?.address
        ? `Run it at ${holder.address}, or wait for the lease with --wait-lease --wait 1m`
        : "Run it on that node, or wait for the lease with --wait-lease --wait 1m";
    case "grace":
      return `Try again${soon || " shortly"}, or wait with --wait`;
    case "busy":
      return "Wait for your turn with --wait, as in --wait 30s";
    case "limit":
    case "draining":
      return `Try again${soon || " later"}`;
    default:
      return "";
  }
}
