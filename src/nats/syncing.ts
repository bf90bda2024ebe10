/**
 * How often the servers write to disk, where they tell: only the system account sees it, and accounts
 * that it exports the question to.
 * @module
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { Finding } from "./setup_error.ts";

/** Asks every server for its JetStream, configuration included. */
export const SYNC_QUESTION = "$SYS.REQ.SERVER.PING.JSZ";

/** How long answers are awaited, in milliseconds; … */
const MAX_WAIT_MS = 1_500;
/** …and after each one another: how many servers there are is not known. */
const STALL_MS = 500;

/** What an answer says, as far as it matters here. */
interface Answer {
  readonly server?: { readonly name?: string };
  readonly data?: {
    readonly config?: { readonly sync_interval?: number; readonly sync_always?: boolean };
  };
}

/** What the servers told. */
export interface Syncing {
  /** Whether anybody answered; if not, this account may not know. */
  readonly told: boolean;
  /** What a person should know; null: every server that answered syncs each write. */
  readonly finding: Finding | null;
}

/** Asks the servers. Never rejects: who may not ask is not told. */
export async function askSyncing(nc: NatsConnection): Promise<Syncing> {
  const answers: Answer[] = [];
  try {
    const replies = await nc.requestMany(SYNC_QUESTION, "", {
      strategy: "stall",
      maxWait: MAX_WAIT_MS,
      stall: STALL_MS,
    });
    for await (const reply of replies) answers.push(reply.json<Answer>());
  } catch {
    // Nobody answers, it is not permitted, or the connection ended: then nothing is known.
  }
  return judgeSyncing(answers);
}

/** Judges the servers' answers. */
export function judgeSyncing(answers: readonly Answer[]): Syncing {
  const told = answers.filter(({ data }) => data?.config?.sync_interval !== undefined);
  const late = told.filter(({ data }) => data?.config?.sync_always !== true);
  if (late.length === 0) return { told: told.length > 0, finding: null };
  const names = late.map(({ server, data }) =>
    `${server?.name ?? "?"} (every ${Math.round(data!.config!.sync_interval! / 1e9)}s)`
  ).sort().join(", ");
  return {
    told: true,
    finding: {
      check: "sync_interval",
      message:
        `What these servers acknowledge is not on disk yet, and a power failure can lose it: ` +
        `${names}. Set sync_interval: always in the jetstream block of each`,
    },
  };
}
