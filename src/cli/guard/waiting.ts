/**
 * Who is in the way of a guard that waits, and for how long yet.
 * @module
 */
import { AgentError, type Connection, openConnection } from "../../client/mod.ts";
import { formatDuration } from "../duration.ts";
import { shortened } from "../output.ts";
import { showProgress } from "../progress.ts";
import { obstacleOf } from "../refusal.ts";

/** What is waited for. */
export interface Wait {
  readonly store: string;
  /** At most, in milliseconds. */
  readonly waitMs: number;
  readonly socket: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Tells a person at a terminal, until the result is called. */
export function announceWait({ store, waitMs, socket, env }: Wait): () => void {
  let agent: Promise<Connection> | null = null;
  const stop = showProgress(async (sinceMs) => {
    agent ??= openConnection({ socket });
    const leftMs = Math.ceil((waitMs - sinceMs) / 1_000) * 1_000;
    if (leftMs <= 0) return null;
    const who = await whoIsInTheWay(store, await agent);
    return `waiting up to ${formatDuration(leftMs)} for ${shortened(store)}: ${who}`;
  }, env);
  return () => {
    stop();
    void agent?.then((connection) => connection.close(), () => {});
  };
}

async function whoIsInTheWay(store: string, agent: Connection): Promise<string> {
  const { state, node, address } = await agent.call("holder", { store });
  if (state === "other") return `${node} holds it${address === null ? "" : ` (${address})`}`;
  if (state === "free") return "nobody holds it; it is being acquired";
  return await whoIsBefore(store, agent);
}

/**
 * Asks for a turn of no wait: behind the guard that waits already, so it is refused, and the refusal
 * says why. If that guard was answered meanwhile and this one is granted, it gives it back at once.
 */
async function whoIsBefore(store: string, agent: Connection): Promise<string> {
  try {
    const { token } = await agent.call("guard", { store });
    await agent.call("release", { token });
    return "its turn is next";
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    if (error.kind === "grace" && error.retryAfterMs !== null) {
      const left = formatDuration(Math.ceil(error.retryAfterMs / 1_000) * 1_000);
      return `in its grace, ${left} more for its last holder`;
    }
    return obstacleOf(error);
  }
}
