/**
 * A guarded job that was stopped from the terminal keeps its lease: the agent goes on renewing it, but
 * the wrapper, stopped as well or only just continued, does not tell. Then the watchdog asks the agent
 * itself.
 * @module
 */
import { AgentError } from "../../client/errors.ts";
import { bootTimeMs } from "../../sys/boot_time.ts";
import { processStartTime } from "../../sys/proc.ts";
import type { Hold } from "./plan.ts";
import type { WatchdogState } from "./watchdog_state.ts";

/** Shorter than any sensible time between asking a command to end and killing it. */
const ANSWER_WITHIN_MS = 500;

/**
 * The grant's hold as the agent proves it. Null where the lease is lost, and where there is no reason to
 * ask: a wrapper that is gone took the grant with it.
 *
 * @throws where there is no answer; an agent that hangs must not hold up the end.
 */
export async function askAgent(state: WatchdogState, wrapper: number): Promise<Hold | null> {
  const { grant, hold } = state;
  if (grant === null || hold === null || processStartTime(wrapper) === null) return null;
  const { openConnection } = await import("../../client/mod.ts");
  const connection = await openConnection({ socket: grant.socket });
  try {
    // Read before the question: what the agent proves is counted from no later than this.
    const askedMs = bootTimeMs();
    const { remaining_ms } = await connection.call(
      "verify",
      { token: grant.token, store: grant.store },
      { signal: AbortSignal.timeout(ANSWER_WITHIN_MS) },
    );
    return { ...hold, deadlineMs: askedMs + remaining_ms };
  } catch (error) {
    if (error instanceof AgentError && ["lost", "no_token"].includes(error.kind)) return null;
    throw error;
  } finally {
    void connection.close();
  }
}
