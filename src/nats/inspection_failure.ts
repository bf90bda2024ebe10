/**
 * Why the buckets could not be inspected or made, in words that lead whoever reads them to the remedy.
 * @module
 */
import { JetStreamApiError } from "@nats-io/jetstream";
import type { Problem } from "./listener.ts";

/** A replicated bucket whose servers have no leader: it can be looked at, and not be written. */
export class LeaderlessError extends Error {
  override readonly name = "LeaderlessError";

  constructor(bucket: string) {
    super(
      `Bucket ${bucket} has no leader, so nothing can be written: too few of the nats-servers that ` +
        "keep it are up, or they do not reach each other. See to them, and their logs",
    );
  }
}

/** A server whose configuration names a cluster, and whose JetStream is in none. */
export class NoMemberError extends Error {
  override readonly name = "NoMemberError";

  constructor() {
    super(
      "The nats-server names a cluster, but its JetStream is not in one: it does not share the leases " +
        "of the other servers, so it is not used. Complete its cluster block (name, listen, routes) and " +
        "restart it",
    );
  }
}

const SEE_LOG = "See the nats-server's log; tried again meanwhile";
const NO_ROOM = "Give the account or the servers more room for JetStream on disk";

/** What to do about what JetStream answers, by the code of its error. */
const REMEDIES: Readonly<Record<number, string>> = {
  10008: "Most of the servers have to be up, and to reach each other; tried again meanwhile",
  10023: NO_ROOM,
  10027: "Raise max_streams of the account: an agent needs two",
  10028: NO_ROOM,
  10047: NO_ROOM,
  10113: "Set max_bytes_required of the account to false: a bucket that is full takes no writes",
};

/** What failed, for a person; `forbidden`: what the server denied meanwhile, in words. */
export function explainInspection(error: unknown, forbidden: string | null): Problem {
  if (forbidden !== null) {
    const message = `JetStream cannot be used as needed: ${forbidden} (docs/coordinator.md lists ` +
      "what an agent needs)";
    return { fatal: false, check: "permissions", topic: forbidden, message };
  }
  const { topic, message } = jetStreamFailure(error);
  return { fatal: false, check: "jetstream", topic: `jetstream ${topic}`, message };
}

/** `topic`: what it is about, where the message may differ from try to try. */
function jetStreamFailure(error: unknown): { topic: string | number; message: string } {
  const name = error instanceof Error ? error.name : "";
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof JetStreamApiError) {
    const remedy = REMEDIES[error.code] ?? SEE_LOG;
    return { topic: error.code, message: `JetStream refuses: ${text} (${error.code}). ${remedy}` };
  }
  if (error instanceof LeaderlessError || error instanceof NoMemberError) {
    return { topic: name, message: text };
  }
  if (name === "JetStreamNotEnabled") {
    return {
      topic: name,
      message: "JetStream does not answer: it is not enabled on the server or for this account, " +
        "or has no leader now. Enable it (jetstream in the configuration), or see the servers' logs",
    };
  }
  if (name === "TimeoutError") {
    return {
      topic: name,
      message:
        "JetStream does not answer in time: it, or a bucket, may have no leader now. If that " +
        "lasts, see whether most of the servers are up, and their logs",
    };
  }
  return { topic: name, message: `Cannot inspect the buckets: ${text}. ${SEE_LOG}` };
}
