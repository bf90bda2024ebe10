/**
 * What a refusal tells a person.
 * @module
 */
import type { AgentError } from "../client/mod.ts";
import { SOCKET_OPTION } from "../client/socket_path.ts";

/** The agent's message, and who holds the store where it does not say that itself. */
export function refusalText(error: AgentError): string {
  return messageOf(error) + holderOf(error);
}

function messageOf({ message }: AgentError): string {
  return message.replace(/\.$/, "").replace(SOCKET_OPTION, "--socket");
}

function holderOf({ message, holder }: AgentError): string {
  if (holder === null || message.includes(holder.node)) return "";
  const where = holder.address === null ? "" : ` at ${holder.address}`;
  return ` (node ${holder.node}${where} holds it)`;
}

/** Only what is in the way, for a line that names the store already: no advice. */
export function obstacleOf({ message }: AgentError): string {
  return message.replace(/^Cannot guard store \S+( yet)?: /, "").replace(
    // The last one: what a write is for may have others.
    /(?:, and other guards wait for it, too)?;[^;]*$/,
    "",
  );
}

/** {@linkcode refusalText} of a guard: how it could wait, where it did not and waiting helps. */
export function guardRefusalText(error: AgentError, waited: boolean): string {
  const flags = waited ? undefined : WAIT_FLAGS[error.kind];
  // Who has waited is not told to wait, but to wait longer.
  if (flags === undefined) {
    return messageOf(error).replace(/\bwait for the lease$/, "wait longer") + holderOf(error);
  }
  // What the agent advises everybody is said once, with the flags that do it.
  const told = messageOf(error).replace(/; wait longer or try again$/, "; try again");
  const how = /\bwait for the lease$/.test(told)
    ? ` with ${flags}`
    : `, or wait for it with ${flags}`;
  return told + how + holderOf(error);
}

const WAIT_FLAGS: Readonly<Record<string, string | undefined>> = {
  not_holder: "--wait-lease --wait 1m",
  busy: "--wait 30s",
  grace: "--wait 30s",
};
