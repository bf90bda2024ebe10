/**
 * Asking the agent: connects, asks, and turns what it refuses into messages and exit statuses.
 * @module
 */
import { AgentError, defaultSocketPath, openConnection } from "../client/mod.ts";
import type { Connection } from "../client/mod.ts";
import { isStoreCode } from "../lease/store_code.ts";
import { Failure, usage } from "./failure.ts";
import { refusalText } from "./refusal.ts";

/** The socket that a command means. */
export function socketOf(options: { readonly socket?: string }): string {
  if (options.socket !== undefined) return options.socket;
  try {
    return defaultSocketPath(process.env, process.getuid!());
  } catch (error) {
    throw usage(`${(error as Error).message}.`);
  }
}

/**
 * Lets `use` ask the agent.
 *
 * @throws {Failure} with the exit status of what went wrong.
 */
export async function withAgent<T>(
  options: { readonly socket?: string },
  use: (agent: Connection) => Promise<T>,
): Promise<T> {
  try {
    const agent = await openConnection({ socket: socketOf(options) });
    const result = await use(agent);
    void agent.close();
    return result;
  } catch (error) {
    if (error instanceof AgentError) throw new Failure(refusalText(error), error.exit);
    throw error;
  }
}

/** Refuses what cannot be a store's code before the agent is asked. */
export function checkStore(store: string): void {
  if (isStoreCode(store)) return;
  throw usage(
    `"${store}" is no store code: 1 to 128 letters, digits, _ or -, with . or / only between them.`,
  );
}
