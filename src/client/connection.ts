/**
 * A connection to the agent: many calls at once, notifications in between.
 * @module
 */
import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { LineSplitter, NOT_UTF8, TOO_LONG } from "../socket/lines.ts";
import {
  type ErrorObject,
  type Method,
  type Methods,
  type Notification,
} from "../socket/protocol.ts";
import { onEnd } from "./bounds.ts";
import { AgentError, agentError, AgentUnreachable } from "./errors.ts";
import { afterReading, checkLength } from "./sending.ts";
import { closedHere, lost, silent } from "./unanswered.ts";

/** No answer is longer: the agent cuts a client off at 8 MiB of backlog. */
const MAX_ANSWER_BYTES = 16 * 1_048_576;

/** What {@linkcode Connection} is made of. */
export interface ConnectionOptions {
  /** The socket's path, for messages. */
  readonly path: string;
  /** What was read from the socket already. */
  readonly received?: Uint8Array;
}

/** How to call. */
export interface CallOptions {
  /**
   * Gives the call up when it aborts: it is rejected with the signal's reason. The agent may still do
   * what was asked; a grant or a subscription that still comes is given back at once.
   */
  readonly signal?: AbortSignal;
  /**
   * How long to wait for the answer, in ms; default: for ever. An agent that hangs (stopped, out of
   * memory) keeps its connections open and answers nothing.
   */
  readonly timeoutMs?: number;
  /** @internal When it began; see {@linkcode Bounds}. */
  readonly sinceMs?: number;
}

/** A call that has no answer yet. */
interface Pending {
  readonly method: Method;
  readonly resolve: (result: never) => void;
  readonly reject: (error: unknown) => void;
  readonly stopListening: () => void;
}

/** A message of the agent, before it is known which. */
interface Message {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: ErrorObject;
}

/** A connection to the agent. What was granted on it is lost when it closes. */
export class Connection {
  /** Resolves when the connection is closed: null if {@linkcode close} did it, else why. */
  readonly closed: Promise<AgentError | null>;
  readonly #socket: Socket;
  readonly #path: string;
  readonly #lines = new LineSplitter(MAX_ANSWER_BYTES);
  readonly #pending = new Map<number, Pending>();
  /** Methods of calls that were given up, by id, until their answers come. */
  readonly #givenUp = new Map<number, Method>();
  readonly #listeners = new Set<(notification: Notification) => void>();
  #lastId = 0;
  /** Requests up to this one were handed to the socket. */
  #sentId = 0;
  /** Requests of this turn of the event loop: they leave in one write. */
  #unsent = "";
  /** Why there are no more answers; undefined while there are, null if we closed. */
  #end: AgentError | null | undefined = undefined;
  /** Whether what the agent said before it was asked has been read. */
  #looked = false;
  /** What is to end before we close. */
  #beforeClosing: ((why: AgentError | null) => Promise<void>) | null = null;

  /**
   * Takes over `socket`, which is connected. Programs call `openConnection` instead.
   *
   * @internal Not in the published types, which so need none of Node's.
   */
  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#path = options.path;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    let cause: Error | undefined;
    socket.on("error", (error) => cause = error);
    this.closed = new Promise((resolve) => {
      socket.on("close", () => {
        this.#finish(lost(this.#path, { cause }));
        resolve(this.#end!);
      });
    });
    if (options.received !== undefined) this.#read(Buffer.from(options.received));
    socket.resume(); // it comes paused
    afterReading(() => {
      this.#looked = true;
      this.#flush();
    });
  }

  /**
   * Calls `method`.
   *
   * @throws {AgentError} what the agent answered; {@linkcode AgentUnreachable} if it went away, or did
   * not answer in time.
   */
  call<M extends Method>(
    method: M,
    params: Methods[M]["params"],
    options: CallOptions = {},
  ): Promise<Methods[M]["result"]> {
    const { signal, timeoutMs = Infinity } = options;
    const late = () => silent(this.#path, method, timeoutMs);
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      if (this.#end !== undefined) throw this.#end ?? closedHere(this.#path);
      const id = ++this.#lastId;
      const line = `${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`;
      checkLength(method, line);
      const stopListening = onEnd(options, late, (reason) => this.#giveUp(id, reason));
      this.#pending.set(id, { method, resolve, reject, stopListening });
      this.#send(line);
    });
  }

  /**
   * Calls `listener` with each notification; the result ends that. A notification can come right
   * behind the answer it belongs to, so listen before calling `guard` or `watch`.
   */
  onNotification(listener: (notification: Notification) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Has `end` called before the connection is closed from here, and waited for: on the agent's side what was
   * granted ends with the connection, so what writes under it has to have ended before. With why the
   * connection is given up, null for {@linkcode close}; until that has ended calls are answered.
   *
   * @internal
   */
  beforeClosing(end: (why: AgentError | null) => Promise<void>): void {
    this.#beforeClosing = end;
  }

  /** Whether calls can still be answered. */
  get open(): boolean {
    return this.#end === undefined;
  }

  /** Closes the connection; calls without an answer are rejected. */
  async close(): Promise<void> {
    if (this.#beforeClosing !== null) await this.#beforeClosing(null);
    this.#finish(null);
    this.#socket.destroy();
    await this.closed;
  }

  /** Closes the connection: for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Lets the process end although the connection is open. */
  unref(): void {
    this.#socket.unref();
  }

  #send(line: string): void {
    if (this.#unsent === "" && this.#looked) queueMicrotask(() => this.#flush());
    this.#unsent += line;
  }

  #flush(): void {
    const text = this.#unsent;
    this.#unsent = "";
    if (text === "" || this.#socket.destroyed) return;
    this.#sentId = this.#lastId;
    this.#socket.write(text);
  }

  #read(chunk: Buffer): void {
    if (this.#end !== undefined) return;
    this.#lines.push(chunk);
    for (let line = this.#lines.next(); line !== null; line = this.#lines.next()) {
      if (this.#end !== undefined) return;
      if (line === TOO_LONG || line === NOT_UTF8) return this.#nonsense();
      let message: Message | null;
      try {
        message = JSON.parse(line);
      } catch {
        return this.#nonsense();
      }
      if (typeof message !== "object" || message === null) return this.#nonsense();
      this.#take(message);
    }
  }

  #take(message: Message): void {
    if (typeof message.method === "string") return this.#notify(message as Notification);
    if (typeof message.id === "number") return this.#settle(message.id, message);
    // Not an answer to anything we asked: the agent does not want this connection.
    if (message.error !== undefined) this.#giveConnectionUp(agentError(message.error));
  }

  #notify(notification: Notification): void {
    for (const listener of this.#listeners) listener(notification);
  }

  #settle(id: number, message: Message): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return this.#giveBack(id, message.result);
    this.#pending.delete(id);
    pending.stopListening();
    if (message.error !== undefined) pending.reject(agentError(message.error));
    else pending.resolve(message.result as never);
  }

  #giveUp(id: number, reason: unknown): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    pending.stopListening();
    this.#givenUp.set(id, pending.method);
    pending.reject(reason);
  }

  /** Undoes what an answer brings that nobody waits for any more. */
  #giveBack(id: number, result: unknown): void {
    const method = this.#givenUp.get(id);
    this.#givenUp.delete(id);
    if (result === undefined) return;
    if (method === "guard") {
      const { token } = result as Methods["guard"]["result"];
      this.call("release", { token }).catch(() => {});
    } else if (method === "watch") {
      const { subscription } = result as Methods["watch"]["result"];
      this.call("unwatch", { subscription }).catch(() => {});
    }
  }

  #nonsense(): void {
    this.#giveConnectionUp(
      new AgentError(`What listens on ${this.#path} does not speak the agent's protocol`, {
        kind: "internal",
      }),
    );
  }

  /** Nothing more is asked or read; the socket is closed when nothing needs it to be open. */
  #giveConnectionUp(why: AgentError): void {
    this.#finish(why);
    const ended = this.#beforeClosing?.(why) ?? Promise.resolve();
    void ended.then(() => this.#socket.destroy());
  }

  /** Rejects every call that has no answer; there will be none. */
  #finish(end: AgentError | null): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    // What the agent said of the connection goes for what it was asked; else only that it is gone.
    const said = end instanceof AgentUnreachable ? null : end;
    for (const [id, { reject, stopListening }] of this.#pending) {
      stopListening();
      const options = { cause: end?.cause, unknown: id <= this.#sentId };
      reject(said ?? (end === null ? closedHere : lost)(this.#path, options));
    }
    this.#pending.clear();
  }
}
