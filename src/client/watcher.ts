/**
 * Following stores: subscribes on a connection of its own, again after each break.
 * @module
 */
import type { LeaseParams, Notification } from "../socket/protocol.ts";
import { onEnd } from "./bounds.ts";
import { type ConnectOptions, openConnection } from "./connect.ts";
import type { Connection } from "./connection.ts";
import { AgentError } from "./errors.ts";
import { onAbort } from "./signals.ts";

/** Stores of one subscription: 5,000 codes of 128 characters fit in a request of 1 MiB. */
const MAX_STORES = 5_000;

/** How soon to connect again, doubled from the first to the last, and spread by chance. */
const FIRST_RETRY_MS = 50;
const LAST_RETRY_MS = 1_000;

/** Who hears of it. */
export interface WatchListener {
  /** The state of a store: the present one first, then each change. */
  lease(state: LeaseParams): void;
  /** All subscriptions are made. */
  up(connection: Connection): void;
  /** The connection is gone, or could not be made: what was told counts no more. */
  down(error: AgentError | null): void;
  /** It will not come back: the agent does not want us, or cannot do what was asked. */
  failed(error: unknown): void;
  /** The client was closed: nothing is told any more. */
  closed(): void;
}

/** What to follow, and for how long. */
export interface WatchOptions extends ConnectOptions {
  readonly socket: string;
  /** Aborts when the client is closed, to which this belongs. Default: it belongs to none. */
  readonly closing?: AbortSignal;
}

/** Follows stores until it is stopped, or the client is closed. */
export class Watcher {
  readonly #options: WatchOptions;
  /** Null: all that the agent knows. */
  readonly #stores: readonly string[] | null;
  readonly #listener: WatchListener;
  readonly #stop = new AbortController();
  /** Set once it is known that the client is open yet: a loop may begin when it is not any more. */
  #stopListening = () => {};
  readonly #ended: Promise<void>;
  #connection: Connection | null = null;

  constructor(
    options: WatchOptions,
    stores: readonly string[] | null,
    listener: WatchListener,
  ) {
    this.#options = options;
    this.#stores = stores;
    this.#listener = listener;
    this.#ended = this.#run();
    this.#stopListening = onAbort([options.closing], () => {
      void this.stop();
      listener.closed();
    });
  }

  /** Stops; nothing is told afterwards. */
  async stop(): Promise<void> {
    this.#stopListening();
    this.#stop.abort();
    await this.#connection?.close();
    await this.#ended;
  }

  get #stopped(): boolean {
    return this.#stop.signal.aborted;
  }

  async #run(): Promise<void> {
    let waitMs = FIRST_RETRY_MS;
    while (!this.#stopped) {
      try {
        this.#connection = await openConnection({ ...this.#options, signal: this.#stop.signal });
        const end = await this.#follow(this.#connection, () => waitMs = FIRST_RETRY_MS);
        if (!this.#stopped) this.#listener.down(end);
      } catch (error) {
        if (this.#stopped) return;
        if (!(error instanceof AgentError) || !error.retryable) return this.#listener.failed(error);
        this.#listener.down(error);
      }
      await this.#pause(waitMs * (0.5 + Math.random()));
      waitMs = Math.min(waitMs * 2, LAST_RETRY_MS);
    }
  }

  /** Subscribes, and resolves with why the connection ended. */
  async #follow(connection: Connection, subscribed: () => void): Promise<AgentError | null> {
    if (this.#stopped) await connection.close();
    const ours = new Set<string>();
    // The first states come right behind the answer, before whoever asked has got that.
    const early: LeaseParams[] = [];
    let asking = true;
    connection.onNotification(({ method, params }: Notification) => {
      if (method !== "lease" || this.#stopped) return;
      if (ours.has(params.subscription)) this.#listener.lease(params);
      else if (asking) early.push(params);
    });
    try {
      const answers = await Promise.all(
        this.#requests().map((params) => connection.call("watch", params)),
      );
      for (const { subscription } of answers) ours.add(subscription);
      if (this.#stopped) return await connection.closed; // right behind the answers
    } catch (error) {
      void connection.close();
      throw error;
    }
    asking = false;
    for (const state of early) this.#listener.lease(state);
    subscribed();
    this.#listener.up(connection);
    return await connection.closed;
  }

  #requests(): { stores?: readonly string[] }[] {
    if (this.#stores === null) return [{}];
    const requests = [];
    for (let i = 0; i < this.#stores.length; i += MAX_STORES) {
      requests.push({ stores: this.#stores.slice(i, i + MAX_STORES) });
    }
    return requests;
  }

  /** Between two tries, unless it is stopped. */
  async #pause(delayMs: number): Promise<void> {
    const { signal } = this.#stop;
    if (signal.aborted) return;
    await new Promise<void>((resolve) =>
      onEnd({ signal, timeoutMs: delayMs }, () => null, () => resolve())
    );
  }
}
