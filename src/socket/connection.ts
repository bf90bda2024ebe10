/**
 * One client's connection: reads its requests at a pace at which their answers can leave, and ends
 * when the client is gone or has got all its answers.
 * @module
 */
import type { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import {
  type BadRequest,
  encodeError,
  encodeNotification,
  type Request,
  RequestDecoder,
} from "./codec.ts";
import type { BusyPoll } from "./busy_poll.ts";
import type { Caller, Dispatcher } from "./dispatch.ts";
import { hungUp } from "./handle.ts";
import type { PassedLock } from "./handlers.ts";
import { Output, type SendWithFd } from "./output.ts";
import type { Peer } from "./peers.ts";
import type { Notifications } from "./protocol.ts";
import { TURN_MS, type Turns } from "./turns.ts";

/** What {@linkcode Connection} is made of. */
export interface ConnectionOptions {
  readonly id: number;
  readonly peer: Peer;
  readonly dispatcher: Dispatcher;
  readonly sendWithFd: SendWithFd;
  /** Requests that may await their answers at once; no more are read meanwhile. */
  readonly maxInFlight: number;
  /** Shared by all connections of the server. */
  readonly turns: Turns;
  /** Shared alike. */
  readonly busyPoll: BusyPoll;
  /** Told of faults of callbacks; must not throw. */
  readonly onError: (error: Error) => void;
  /** Told once when the connection is closed, never from within a call of a method here. */
  readonly onClose: (connection: Connection) => void;
}

/** A connection of the server. */
export class Connection implements Caller {
  readonly id: number;
  readonly peer: Peer;
  data: unknown = undefined;
  readonly #socket: Socket;
  readonly #dispatcher: Dispatcher;
  readonly #maxInFlight: number;
  readonly #turns: Turns;
  readonly #busyPoll: BusyPoll;
  readonly #onError: (error: Error) => void;
  readonly #decoder = new RequestDecoder();
  readonly #output: Output;
  readonly #waiting: (() => void)[] = [];
  #inFlight = 0;
  /** Whether a handler runs: an answer that it gives at once was not waited for. */
  #taking = false;
  /** Whether requests are left untaken: because of those in flight, of unread answers, of others' turns. */
  #held = false;
  #awaitsTurn = false;
  /** Whether the client shut its sending side down. */
  #ended = false;
  #resumeScheduled = false;

  constructor(socket: Socket, options: ConnectionOptions) {
    this.id = options.id;
    this.peer = options.peer;
    this.#socket = socket;
    this.#dispatcher = options.dispatcher;
    this.#maxInFlight = options.maxInFlight;
    this.#turns = options.turns;
    this.#busyPoll = options.busyPoll;
    this.#onError = options.onError;
    this.#output = new Output(socket, {
      sendWithFd: options.sendWithFd,
      onOverflow: () => socket.destroy(),
      onDrain: () => this.#goOn(),
    });
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("end", () => this.#readEnd());
    // The close that follows says all there is to say: the client is gone.
    socket.on("error", () => {});
    socket.on("close", () => {
      this.#output.close();
      options.onClose(this);
    });
  }

  get closed(): boolean {
    return this.#output.closed;
  }

  get congested(): boolean {
    return this.#output.congested;
  }

  /** Whether the client may be gone without the runtime telling: only reading tells it. */
  get mayBeGone(): boolean {
    return this.#ended || this.#held;
  }

  notify<M extends keyof Notifications>(method: M, params: Notifications[M]): void {
    this.#output.send(encodeNotification(method, params));
  }

  onDrain(callback: () => void): void {
    this.#waiting.push(callback);
    if (!this.congested) this.#goOn();
  }

  answer(line: string | null, lock?: PassedLock): void {
    this.#inFlight--;
    if (!this.#taking) this.#busyPoll.answered();
    if (line !== null) {
      if (lock === undefined) this.#output.send(line);
      else this.#output.sendWithDescriptor(line, lock);
    }
    if (this.#held || this.#ended) this.#goOn();
  }

  /** Closes the connection if the client is gone. */
  reap(): void {
    if (this.mayBeGone && hungUp(this.#socket)) this.#socket.destroy();
  }

  /** Ends the connection: what was answered is still sent, what is in flight is not. */
  end(): void {
    this.#output.end();
  }

  /** Ends the connection at once. */
  destroy(): void {
    this.#socket.destroy();
  }

  #read(chunk: Buffer): void {
    this.#decoder.push(chunk);
    this.#takeRequests();
  }

  #readEnd(): void {
    this.#ended = true;
    this.#takeRequests();
  }

  /**
   * Takes requests until there are no more, or until too many wait for an answer or to be read, or
   * others have their turn.
   */
  #takeRequests(): void {
    if (this.#awaitsTurn) return;
    const until = performance.now() + TURN_MS;
    let request = this.#next();
    while (request !== null) {
      this.#take(request);
      if (performance.now() >= until) {
        this.#awaitTurn();
        break;
      }
      request = this.#next();
    }
    this.#pace();
    if (this.#ended && !this.#held) this.#finish();
  }

  #awaitTurn(): void {
    this.#held = true;
    this.#awaitsTurn = true;
    this.#turns.add(() => {
      this.#awaitsTurn = false;
      if (!this.closed) this.#takeRequests();
    });
  }

  #next(): Request | BadRequest | null {
    this.#held = this.#inFlight >= this.#maxInFlight || this.#output.congested;
    if (this.#held || this.closed) return null;
    return this.#decoder.next() ?? (this.#ended ? this.#decoder.end() : null);
  }

  #take(request: Request | BadRequest): void {
    if (request.kind === "bad") {
      this.#output.send(encodeError(request.id, request.error));
      return;
    }
    const before = this.#inFlight++;
    this.#taking = true;
    this.#dispatcher.run(request, this);
    this.#taking = false;
    if (this.#inFlight > before) this.#busyPoll.awaitAnswer();
  }

  /** Lets the kernel hold the client back while requests are left untaken here. */
  #pace(): void {
    if (this.#ended) return;
    if (this.#held !== this.#socket.isPaused()) {
      if (this.#held) this.#socket.pause();
      else this.#socket.resume();
    }
  }

  /**
   * Goes on with what had to wait. Later, because handlers must not be run from within an answer of
   * another one.
   */
  #goOn(): void {
    if (this.#resumeScheduled) return;
    this.#resumeScheduled = true;
    setImmediate(() => {
      this.#resumeScheduled = false;
      if (this.closed) return;
      // News first: an answer never overtakes what had to be told before it.
      this.#wake();
      if (this.#held || this.#ended) this.#takeRequests();
    });
  }

  /** Calls who waits for the client to catch up, as long as what they send does not put it behind. */
  #wake(): void {
    while (this.#waiting.length > 0 && !this.congested) {
      try {
        this.#waiting.shift()!();
      } catch (cause) {
        this.#onError(new Error(`Cannot go on with connection ${this.id}: ${cause}`, { cause }));
      }
    }
  }

  /** Closes for a client that shut its sending side down, once it has all its answers. */
  #finish(): void {
    if (this.#inFlight === 0) this.#output.end();
  }
}
