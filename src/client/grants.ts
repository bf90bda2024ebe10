/**
 * The grants of one connection: brings each what the agent tells of it, has each look at the clock, and
 * tells all when the connection is gone.
 * @module
 */
import type { GuardParams, Notification } from "../socket/protocol.ts";
import type { Bounds } from "./bounds.ts";
import type { BootClock } from "./clock.ts";
import type { Connection } from "./connection.ts";
import { AgentUnreachable } from "./errors.ts";
import { LiveGrant } from "./grant.ts";

/**
 * How often to look at the clock while writes run. Timers stand still while the machine is suspended,
 * so one that was set for a deadline would come late by what it had left.
 */
const LOOK_EVERY_MS = 250;

/** Why a grant ends with its connection. */
const AGENT_GONE = "the agent is gone, and the grant with it";

/** What is the caller's own of a grant. */
export interface GrantOptions extends Bounds {
  /** The agent's executable, where the lock is to pass on; null where not. */
  readonly passLock: string | null;
}

/** Asks for grants on a connection. */
export class Grants {
  readonly connection: Connection;
  /** Resolves when the connection is gone, and nothing writes under its grants any more. */
  readonly over: Promise<void>;
  readonly #clock: BootClock;
  readonly #socket: string;
  readonly #live = new Map<string, LiveGrant>();
  /** News of a grant can come right behind the answer, before whoever asked has got that. */
  readonly #early = new Map<string, Notification[]>();
  #asking = 0;
  #closing = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When the timer comes; on the monotonic clock, as timers do. */
  #lookAtMs = Infinity;

  constructor(connection: Connection, options: { clock: BootClock; socket: string }) {
    this.connection = connection;
    this.#clock = options.clock;
    this.#socket = options.socket;
    connection.onNotification((notification) => this.#take(notification));
    connection.beforeClosing(async (why) => {
      const grants = this.#abandonAll(why?.message ?? "this client was closed");
      await Promise.all(grants.map((grant) => grant.settled()));
    });
    // Once for all grants: what waits for a promise is kept until that is settled.
    this.over = connection.closed.then(async () => {
      await Promise.all(this.#abandonAll(AGENT_GONE).map(({ over }) => over));
    });
  }

  /**
   * Asks for a grant.
   *
   * @throws {AgentError} what the agent refused with. The signal's reason if it aborts before.
   */
  async ask(params: GuardParams, options: GrantOptions): Promise<LiveGrant> {
    const { passLock, ...bounds } = options;
    this.#asking++;
    try {
      const { connection } = this;
      const asked = { ...params, follow: true };
      const result = await connection.call("guard", asked, bounds);
      if (this.#closing) throw this.#tooLate(result.token);
      const grant = new LiveGrant({
        connection,
        result,
        clock: this.#clock,
        socket: this.#socket,
        signal: bounds.signal,
        passLock,
      });
      this.#live.set(grant.secret, grant);
      for (const notification of this.#early.get(grant.secret) ?? []) grant.take(notification);
      this.#early.delete(grant.secret);
      if (!connection.open) grant.abandon(AGENT_GONE); // right behind the answer
      this.#lookIn(grant.look());
      return grant;
    } finally {
      if (--this.#asking === 0) this.#early.clear();
    }
  }

  /** Ends a grant; see {@linkcode LiveGrant.end}. */
  async end(grant: LiveGrant): Promise<void> {
    try {
      await grant.end();
    } finally {
      void grant.over.then(() => this.#live.delete(grant.secret));
    }
  }

  /** No writes from now on; returns what has to end yet. */
  #abandonAll(why: string): LiveGrant[] {
    this.#closing = true;
    const grants = [...this.#live.values()];
    for (const grant of grants) grant.abandon(why);
    return grants;
  }

  /** It came while the others were being ended. */
  #tooLate(token: string): AgentUnreachable {
    this.connection.call("release", { token }).catch(() => {});
    return new AgentUnreachable(`Cannot write: the connection to the agent is being closed`);
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

  #lookIn(delayMs: number): void {
    const atMs = performance.now() + Math.min(delayMs, LOOK_EVERY_MS);
    if (atMs >= this.#lookAtMs) return;
    clearTimeout(this.#timer);
    this.#lookAtMs = atMs;
    this.#timer = setTimeout(() => this.#look(), Math.min(delayMs, LOOK_EVERY_MS));
    // The writes, not their deadlines, keep the process going.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  #look(): void {
    this.#lookAtMs = Infinity;
    let nextMs = Infinity;
    for (const grant of this.#live.values()) nextMs = Math.min(nextMs, grant.look());
    if (this.#live.size > 0) this.#lookIn(nextMs);
  }
}
