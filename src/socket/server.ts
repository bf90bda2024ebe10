/**
 * The server: takes connections as far as limits and peers allow, and hands their requests to the
 * handlers.
 * @module
 */
import { createServer, type Server, type Socket } from "node:net";
import type { Refusal } from "../lease/errors.ts";
import { type BoundPath, listenOnDescriptor, listenOnPath } from "./bind.ts";
import { encodeError, NO_ID } from "./codec.ts";
import { Connection } from "./connection.ts";
import { BusyPoll } from "./busy_poll.ts";
import { connectionLimit, turnedAwayLimit } from "./limits.ts";
import { Dispatcher } from "./dispatch.ts";
import { descriptorOf } from "./handle.ts";
import type { ConnectionHandle, Handlers } from "./handlers.ts";
import type { SendWithFd } from "./output.ts";
import type { SocketBound } from "./path_checks.ts";
import type { Peer } from "./peers.ts";
import type { Method } from "./protocol.ts";
import { errorObject } from "./refusals.ts";
import { Turns } from "./turns.ts";

/** How often to look whether clients that cannot be read from are still there. */
const REAP_INTERVAL_MS = 100;

/** How long somebody who was turned away has to read why. */
const TURNED_AWAY_MS = 1_000;

/** How long clients have to read their last answers when the server stops. */
const STOP_MS = 1_000;

/** What a {@linkcode SocketServer} is made of. */
export interface ServerOptions {
  readonly handlers: Handlers;
  /** `--max-connections`. */
  readonly maxConnections: number;
  /** RLIMIT_NOFILE: fewer connections are taken if it is low. */
  readonly descriptors: number;
  /**
   * Requests of one connection that may await their answers at once; no more are read meanwhile. See
   * {@linkcode inFlightLimit}.
   */
  readonly maxInFlight: number;
  /** SO_PEERCRED of a connected socket. Throws if the kernel does not tell. */
  readonly peerCredentials: (fd: number) => Peer;
  readonly sendWithFd: SendWithFd;
  readonly socketBound: SocketBound;
  /** Null, or why `peer` may not connect. */
  readonly mayConnect: (peer: Peer) => Refusal | null;
  /** Null, or why `peer` may not call `method`. */
  readonly mayCall: (peer: Peer, method: Method) => Refusal | null;
  /** Told once of each connection that closed, before its number of descriptors is reused. */
  readonly onClose: (connection: ConnectionHandle) => void;
  /** Told of each connection that was not taken, `limit` or `forbidden`. */
  readonly onTurnedAway?: (refusal: Refusal) => void;
  /** Told of faults that nobody else is told of; must not throw. */
  readonly onError: (error: Error) => void;
}

/** The agent's socket. */
export class SocketServer {
  /** How many connections are taken: `--max-connections`, or fewer where descriptors are few. */
  readonly maxConnections: number;
  readonly #options: ServerOptions;
  readonly #dispatcher: Dispatcher;
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  readonly #turns = new Turns();
  readonly #busyPoll = new BusyPoll();
  /** Oldest first. */
  readonly #turnedAway = new Set<Socket>();
  readonly #maxTurnedAway: number;
  #path: BoundPath | null = null;
  #reaper: ReturnType<typeof setInterval> | null = null;
  #lastId = 0;
  #whenEmpty = (): void => {};

  constructor(options: ServerOptions) {
    this.#options = options;
    this.maxConnections = connectionLimit(options.maxConnections, options.descriptors);
    this.#maxTurnedAway = turnedAwayLimit(options.descriptors);
    this.#dispatcher = new Dispatcher(options);
    this.#server = createServer(
      // Half-open, so that a client that has sent everything still gets its answers.
      { allowHalfOpen: true },
      (socket) => this.#accept(socket),
    );
  }

  /** How many connections there are. */
  get connections(): number {
    return this.#connections.size;
  }

  /**
   * Listens on the socket file `path`, replacing one that nobody listens on.
   *
   * @throws {SocketError} if somebody does, or the file cannot be made there.
   */
  async listen(path: string): Promise<void> {
    const { socketBound, peerCredentials } = this.#options;
    this.#path = await listenOnPath(this.#server, { path, socketBound, peerCredentials });
    this.#listening();
  }

  /**
   * Listens on a socket that was passed in, as by systemd. Its file stays when the server stops.
   *
   * @throws {SocketError} if it is not a listening socket.
   */
  async listenOn(fd: number): Promise<void> {
    await listenOnDescriptor(this.#server, fd);
    this.#listening();
  }

  /** Whether clients that connect to the path get here. Always, for a socket that was passed in. */
  get reachable(): boolean {
    return this.#path === null || this.#path.isOurs();
  }

  /**
   * Stops: removes the socket file if it is still ours, and closes every connection once its answers
   * are read, or after a second. Resolves when all are closed.
   */
  async stop(): Promise<void> {
    const closed = Promise.all([
      new Promise((resolve) => this.#server.close(resolve)),
      // The runtime may count a connection as closed before we were told.
      new Promise<void>((resolve) => this.#whenEmpty = resolve),
    ]);
    this.#path?.remove();
    for (const connection of this.#connections) connection.end();
    if (this.#connections.size === 0) this.#whenEmpty();
    const kill = setTimeout(() => this.#destroyAll(), STOP_MS);
    await closed;
    clearTimeout(kill);
    if (this.#reaper !== null) clearInterval(this.#reaper);
  }

  #listening(): void {
    this.#server.on("error", this.#options.onError);
    this.#reaper = setInterval(() => this.#reap(), REAP_INTERVAL_MS);
  }

  #accept(socket: Socket): void {
    if (this.#connections.size >= this.maxConnections) {
      return this.#turnAway(socket, {
        kind: "limit",
        message: `The agent has ${this.maxConnections} connections already; close one, or raise ` +
          "--max-connections and the limit of open files",
      });
    }
    let peer: Peer;
    try {
      peer = this.#options.peerCredentials(descriptorOf(socket));
    } catch (error) {
      // Gone before it was looked at, or the kernel does not tell: nobody to answer to.
      socket.destroy();
      return this.#options.onError(error as Error);
    }
    const refusal = this.#options.mayConnect(peer);
    if (refusal !== null) return this.#turnAway(socket, refusal);
    this.#connections.add(
      new Connection(socket, {
        id: ++this.#lastId,
        peer,
        dispatcher: this.#dispatcher,
        sendWithFd: this.#options.sendWithFd,
        maxInFlight: this.#options.maxInFlight,
        turns: this.#turns,
        busyPoll: this.#busyPoll,
        onError: this.#options.onError,
        onClose: (connection) => this.#closed(connection),
      }),
    );
  }

  #closed(connection: Connection): void {
    this.#connections.delete(connection);
    try {
      this.#options.onClose(connection);
    } catch (cause) {
      this.#options.onError(
        new Error(`Cannot clean up after connection ${connection.id}: ${cause}`, { cause }),
      );
    }
    if (this.#connections.size === 0) this.#whenEmpty();
  }

  /**
   * Tells why, and closes once the client has. A socket that is closed with something unread in it
   * resets the connection, and a client whose writing fails may never read the reason. So what the
   * client sends is read and dropped meanwhile; if too many linger so, who has had the most time goes.
   */
  #turnAway(socket: Socket, refusal: Refusal): void {
    this.#options.onTurnedAway?.(refusal);
    const timer = setTimeout(() => socket.destroy(), TURNED_AWAY_MS);
    socket.on("error", () => {});
    socket.on("end", () => socket.destroy());
    socket.on("close", () => {
      clearTimeout(timer);
      this.#turnedAway.delete(socket);
    });
    socket.resume();
    socket.end(encodeError(NO_ID, errorObject(refusal)));
    this.#turnedAway.add(socket);
    if (this.#turnedAway.size <= this.#maxTurnedAway) return;
    const [oldest] = this.#turnedAway;
    this.#turnedAway.delete(oldest);
    oldest.destroy();
  }

  #reap(): void {
    for (const connection of this.#connections) connection.reap();
  }

  #destroyAll(): void {
    for (const connection of this.#connections) connection.destroy();
    for (const socket of this.#turnedAway) socket.destroy();
  }
}
