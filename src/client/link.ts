/**
 * The way to the agent over its restarts: connects when there is something to ask.
 * @module
 */
import { type BootClock, bootClock } from "./clock.ts";
import { type ConnectOptions, openConnection } from "./connect.ts";
import type { Connection } from "./connection.ts";
import { AgentUnreachable } from "./errors.ts";
import { Grants } from "./grants.ts";

/** A connection with its grants, made again when it is gone. */
export class Link {
  readonly #options: ConnectOptions & { readonly socket: string };
  readonly clock: BootClock = bootClock();
  #current: Grants | null = null;
  #dialling: Promise<Grants> | null = null;
  #closed = false;

  constructor(options: ConnectOptions & { readonly socket: string }) {
    this.#options = options;
  }

  /**
   * Lets `use` ask on the connection. If the agent went away before it answered, as one that is
   * restarted does, it is asked once more on a new connection: for questions, and for guards, which
   * do not outlive their connection.
   *
   * @throws {AgentUnreachable} if there is no agent, or the link was closed.
   */
  async use<T>(use: (on: Grants) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#current;
    const on = await this.dial();
    try {
      return await use(on);
    } catch (error) {
      const stale = error instanceof AgentUnreachable && on === before && !on.connection.open;
      if (!stale || this.#closed || signal?.aborted) throw error;
      return await use(await this.dial());
    }
  }

  /** The connection, made if there is none. */
  dial(): Promise<Grants> {
    if (this.#closed) return Promise.reject(closedByUs(this.#options.socket));
    if (this.#current?.connection.open) return Promise.resolve(this.#current);
    this.#dialling ??= this.#connect().finally(() => this.#dialling = null);
    return this.#dialling;
  }

  async #connect(): Promise<Grants> {
    const { socket } = this.#options;
    const connection: Connection = await openConnection(this.#options);
    if (this.#closed) {
      await connection.close();
      throw closedByUs(socket);
    }
    this.#current = new Grants(connection, { clock: this.clock, socket });
    return this.#current;
  }

  /** Closes the connection for good: what was granted on it is over. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#current?.connection.close();
  }
}

function closedByUs(socket: string): AgentUnreachable {
  return new AgentUnreachable(`Cannot ask the agent at ${socket}: this client was closed`);
}
