/**
 * The way to the agent over its restarts: connects when there is something to ask.
 * @module
 */
import { type Bounds, within } from "./bounds.ts";
import { type BootClock, bootClock } from "./clock.ts";
import { type ConnectOptions, openConnection, tooSlow } from "./connect.ts";
import { AgentUnreachable, InvalidError } from "./errors.ts";
import { Grants } from "./grants.ts";

/** Connecting, for all who want it. */
interface Dialling {
  readonly connected: Promise<Grants>;
  /** Ends it. */
  readonly giveUp: AbortController;
  wantedBy: number;
}

/** A connection with its grants, made again when it is gone. */
export class Link {
  readonly #options: ConnectOptions & { readonly socket: string };
  readonly clock: BootClock = bootClock();
  #current: Grants | null = null;
  /** All under whose grants something may still run, also when the connection is gone. */
  readonly #open = new Set<Grants>();
  #dialling: Dialling | null = null;
  readonly #closing = new AbortController();

  constructor(options: ConnectOptions & { readonly socket: string }) {
    this.#options = options;
  }

  /**
   * Aborts, with the error of what is asked afterwards, when the link is closed: for what connects by
   * itself.
   */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * Lets `use` ask on the connection. Connecting, too, is within the bounds. If the agent went away before it
   * answered, as one that is restarted does, it is asked once more on a new connection: for questions, and
   * for guards, which do not outlive their connection.
   *
   * @throws {AgentUnreachable} if there is no agent. {@linkcode InvalidError} if the link was closed. What
   * the signal aborts with.
   */
  async use<T>(use: (on: Grants) => Promise<T>, bounds: Bounds): Promise<T> {
    const before = this.#current;
    const on = await this.dial(bounds);
    try {
      return await use(on);
    } catch (error) {
      const stale = error instanceof AgentUnreachable && on === before && !on.connection.open;
      if (!stale || this.closing.aborted || bounds.signal?.aborted) throw error;
      return await use(await this.dial(bounds));
    }
  }

  /** The connection, made if there is none. */
  async dial(bounds: Bounds = {}): Promise<Grants> {
    const { socket } = this.#options;
    this.closing.throwIfAborted();
    if (this.#current?.connection.open) return this.#current;
    const dialling = this.#dialling ??= this.#dial();
    dialling.wantedBy++;
    try {
      return await within(dialling.connected, bounds, () => tooSlow(socket, bounds.timeoutMs!));
    } finally {
      if (--dialling.wantedBy === 0) this.#giveUp(dialling, null);
    }
  }

  #dial(): Dialling {
    const giveUp = new AbortController();
    const connected = this.#connect(giveUp.signal);
    connected.catch(() => {}); // whoever waits is told
    return { connected, giveUp, wantedBy: 0 };
  }

  /** Nobody waits for it any more, or is to; of no effect on what is connected. */
  #giveUp(dialling: Dialling, reason: unknown): void {
    if (this.#dialling === dialling) this.#dialling = null;
    dialling.giveUp.abort(reason);
  }

  async #connect(signal: AbortSignal): Promise<Grants> {
    const { socket } = this.#options;
    const connection = await openConnection({ ...this.#options, signal });
    if (signal.aborted) {
      await connection.close();
      throw signal.reason;
    }
    const grants = new Grants(connection, { clock: this.clock, socket });
    this.#current = grants;
    this.#open.add(grants);
    void grants.over.then(() => this.#open.delete(grants));
    return grants;
  }

  /** Closes the connection for good, once what runs under its grants has ended. */
  async close(): Promise<void> {
    this.#closing.abort(closedByUs(this.#options.socket));
    if (this.#dialling !== null) this.#giveUp(this.#dialling, this.closing.reason);
    await Promise.all([...this.#open].map(({ connection }) => connection.close()));
  }
}

/** No use in asking again: what is closed stays so. */
function closedByUs(socket: string): InvalidError {
  return new InvalidError(`Cannot ask the agent at ${socket}: this client was closed`);
}
