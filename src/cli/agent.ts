/**
 * Asking the agent: connects, asks, and turns what it refuses into messages and exit statuses.
 * @module
 */
import { AgentError, AgentUnreachable, defaultSocketPath, openConnection } from "../client/mod.ts";
import type { Connection } from "../client/mod.ts";
import { isStoreCode, MAX_STORE_CODE_LENGTH } from "../lease/store_code.ts";
import { Failure, usage } from "./failure.ts";
import { shortened } from "./output.ts";
import { refusalText } from "./refusal.ts";

/** The socket that a command means. */
export function socketOf(options: { readonly socket?: string }): string {
  if (options.socket !== undefined) return options.socket;
  try {
    return defaultSocketPath(process.env, process.getuid!());
  } catch (error) {
    throw usage(`${refusalText(error as AgentError)}.`);
  }
}

/** How long an agent may take to answer a question: it answers from memory, or within 2 s. */
const ANSWER_MS = 5_000;

/**
 * Lets `use` ask the agent, which must be done within `withinMs` (default 5 s; Infinity for what
 * waits by its nature).
 *
 * @throws {Failure} with the exit status of what went wrong.
 */
export async function withAgent<T>(
  options: { readonly socket?: string },
  use: (agent: Connection) => Promise<T>,
  withinMs = ANSWER_MS,
): Promise<T> {
  try {
    const socket = socketOf(options);
    const agent = await openConnection({ socket });
    const result = await within(withinMs, socket, use(agent));
    void agent.close();
    return result;
  } catch (error) {
    if (error instanceof AgentError) throw new Failure(refusalText(error), error.exit);
    throw error;
  }
}

/** The result of `answer`, unless it takes too long: an agent that is frozen cannot be reached. */
async function within<T>(ms: number, socket: string, answer: Promise<T>): Promise<T> {
  if (ms === Infinity) return await answer;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const message =
      `The agent at ${socket} does not answer: it took the connection, and has said ` +
      `nothing for ${ms / 1_000} s; look whether it hangs (systemctl status zit-agent)`;
    timer = setTimeout(() => reject(new AgentUnreachable(message)), ms);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Refuses what cannot be a store's code before the agent is asked. */
export function checkStore(store: string): void {
  if (isStoreCode(store)) return;
  throw usage(
    `"${
      shortened(store)
    }" is no store code: 1 to ${MAX_STORE_CODE_LENGTH} letters, digits, _ or -, ` +
      `with . or / only between them, and no - first${
        store.length > MAX_STORE_CODE_LENGTH ? `; this has ${store.length}` : ""
      }.`,
  );
}
