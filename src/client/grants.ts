/**
 * The grants of one connection: brings each what the agent tells of it.
 * @module
 */
import type { GuardParams, Notification } from "../socket/protocol.ts";
import type { BootClock } from "./clock.ts";
import type { Connection } from "./connection.ts";
import { LiveGrant } from "./grant.ts";

/** What is the caller's own of a grant. */
export interface AskOptions {
  readonly signal?: AbortSignal;
  /** The agent's executable, where the lock is to pass on. */
  readonly passLock?: string;
}

/** Asks for grants on a connection. */
export class Grants {
  readonly connection: Connection;
  readonly #clock: BootClock;
  readonly #socket: string;
  readonly #live = new Map<string, LiveGrant>();
  /** News of a grant can come right behind the answer, before whoever asked has got that. */
  readonly #early = new Map<string, Notification[]>();
  #asking = 0;

  constructor(connection: Connection, options: { clock: BootClock; socket: string }) {
    this.connection = connection;
    this.#clock = options.clock;
    this.#socket = options.socket;
    connection.onNotification((notification) => this.#take(notification));
  }

  /**
   * Asks for a grant.
   *
   * @throws {AgentError} what the agent refused with. The signal's reason if it aborts before.
   */
  async ask(params: GuardParams, { signal, passLock }: AskOptions): Promise<LiveGrant> {
    this.#asking++;
    try {
      const result = await this.connection.call("guard", { ...params, follow: true }, { signal });
      const { connection } = this;
      const grant = new LiveGrant({
        connection,
        result,
        clock: this.#clock,
        socket: this.#socket,
        signal,
        passLock,
      });
      this.#live.set(grant.secret, grant);
      for (const notification of this.#early.get(grant.secret) ?? []) grant.take(notification);
      this.#early.delete(grant.secret);
      return grant;
    } finally {
      if (--this.#asking === 0) this.#early.clear();
    }
  }

  /** Ends a grant; see {@linkcode LiveGrant.end}. */
  end(grant: LiveGrant): Promise<void> {
    this.#live.delete(grant.secret);
    return grant.end();
  }

  #take(notification: Notification): void {
    if (notification.method === "lease") return;
    const { token } = notification.params;
    const grant = this.#live.get(token);
    if (grant !== undefined) return grant.take(notification);
    if (this.#asking === 0) return;
    const early = this.#early.get(token);
    if (early === undefined) this.#early.set(token, [notification]);
    else early.push(notification);
  }
}
