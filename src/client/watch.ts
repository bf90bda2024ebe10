/**
 * Following stores with `for await`.
 * @module
 */
import type { LeaseParams } from "../socket/protocol.ts";
import type { AgentError } from "./errors.ts";
import { onAbort } from "./signals.ts";
import { Watcher, type WatchOptions } from "./watcher.ts";

/** The state of a store, as {@linkcode Client.watch} tells it. */
export interface LeaseChange extends Omit<LeaseParams, "subscription"> {
  readonly type: "lease";
}

/** The agent is gone: nothing is held, as far as known, until states are told again. */
export interface Disconnected {
  readonly type: "disconnected";
  readonly error: AgentError | null;
}

/**
 * Tells the present state of stores, then each change, over restarts of the agent. A reader that is
 * slow gets the newest state of each store: no more than that is kept. The loop ends when the client
 * is closed.
 */
export async function* watchStores(
  options: WatchOptions,
  stores: readonly string[] | null,
  signal: AbortSignal | undefined,
): AsyncGenerator<LeaseChange | Disconnected, void, void> {
  signal?.throwIfAborted();
  const due = new Map<string, LeaseChange>();
  let gone: Disconnected | null = null;
  let end: { error: unknown } | "closed" | null = null;
  let wake = () => {};
  const watcher = new Watcher(options, stores, {
    lease({ subscription: _, ...state }) {
      due.delete(state.store);
      due.set(state.store, { type: "lease", ...state });
      wake();
    },
    up: () => {},
    down(error) {
      due.clear();
      gone = { type: "disconnected", error };
      wake();
    },
    failed(error) {
      end = { error };
      wake();
    },
    closed() {
      end = "closed";
      wake();
    },
  });
  const stopListening = onAbort([signal], (error) => {
    end = { error };
    wake();
  });
  try {
    while (true) {
      if (end === "closed") return;
      if (end !== null) throw (end as { error: unknown }).error;
      if (gone !== null) {
        const told: Disconnected = gone;
        gone = null;
        yield told;
        continue;
      }
      const [first] = due.values();
      if (first === undefined) {
        await new Promise<void>((resolve) => wake = resolve);
        continue;
      }
      due.delete(first.store);
      yield first;
    }
  } finally {
    stopListening();
    await watcher.stop();
  }
}
