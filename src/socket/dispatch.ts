/**
 * From a decoded request to its handler, and from the handler's answer to a line.
 * @module
 */
import type { Refusal } from "../lease/errors.ts";
import { encodeError, encodeResult, INTERNAL_ERROR, type Request } from "./codec.ts";
import type { ConnectionHandle, Handler, Handlers, PassedLock, Reply } from "./handlers.ts";
import { parseParams } from "./params.ts";
import type { Peer } from "./peers.ts";
import type { Method } from "./protocol.ts";
import { errorObject, unknownMethod } from "./refusals.ts";

/** A connection, as dispatching sees it. */
export interface Caller extends ConnectionHandle {
  /** Takes the answer of a request: its line, or null where none is wanted, and a descriptor to pass. */
  answer(line: string | null, lock?: PassedLock): void;
}

/** What {@linkcode Dispatcher} is made of. */
export interface DispatcherOptions {
  readonly handlers: Handlers;
  /** Null, or why `peer` may not call `method`. */
  readonly mayCall: (peer: Peer, method: Method) => Refusal | null;
  /** Told of faults of the handlers; must not throw. */
  readonly onError: (error: Error) => void;
}

/**
 * Methods whose answer is their point: sent as a notification, which gets no answer, they would leave
 * a grant that nobody can release and a subscription that nobody can end. So they are not run.
 */
const WANT_ANSWER: ReadonlySet<string> = new Set<Method>(["guard", "watch"]);

/** Finds the handler of each request and sees to it that it is answered once. */
export class Dispatcher {
  readonly #handlers: ReadonlyMap<string, Handler<Method>>;
  readonly #mayCall: DispatcherOptions["mayCall"];
  readonly #onError: DispatcherOptions["onError"];

  constructor(options: DispatcherOptions) {
    // A map, so that no method's name is found in a prototype.
    this.#handlers = new Map(Object.entries(options.handlers) as [string, Handler<Method>][]);
    this.#mayCall = options.mayCall;
    this.#onError = options.onError;
  }

  /** Runs `request` for `caller`, whose `answer` is called exactly once, perhaps before this returns. */
  run(request: Request, caller: Caller): void {
    const handler = this.#handlers.get(request.method);
    const reply = new SingleReply(request, caller, this.#onError);
    if (handler === undefined) {
      return reply.error(unknownMethod(request.method, [...this.#handlers.keys()]));
    }
    if (request.id === null && WANT_ANSWER.has(request.method)) return reply.drop();
    const method = request.method as Method;
    const refusal = this.#mayCall(caller.peer, method);
    if (refusal !== null) return reply.fail(refusal);
    const parsed = parseParams(method, request.params);
    if (!parsed.ok) return reply.fail(parsed.refusal);
    try {
      handler(parsed.params as never, caller, reply as Reply<never>);
    } catch (cause) {
      reply.broken(cause);
    }
  }
}

/** The answer of one request. */
class SingleReply implements Reply<unknown> {
  readonly #request: Request;
  readonly #onError: (error: Error) => void;
  /** Null once answered. */
  #caller: Caller | null;

  constructor(request: Request, caller: Caller, onError: (error: Error) => void) {
    this.#request = request;
    this.#caller = caller;
    this.#onError = onError;
  }

  ok(result: unknown, lock?: PassedLock): void {
    if (this.#caller === null) return this.#answeredTwice();
    let line: string | null = null;
    try {
      if (this.#request.id !== null) line = encodeResult(this.#request.id, result);
    } catch (cause) {
      return this.broken(cause);
    }
    this.#answer(line, lock);
  }

  fail(refusal: Refusal): void {
    this.error(errorObject(refusal));
  }

  error(error: Parameters<typeof encodeError>[1]): void {
    if (this.#caller === null) return this.#answeredTwice();
    this.#answer(this.#request.id === null ? null : encodeError(this.#request.id, error));
  }

  /** Counts as answered, without an answer. */
  drop(): void {
    this.#answer(null);
  }

  /** The handler failed: tells the log why, and the client, unless it has its answer, only that. */
  broken(cause: unknown): void {
    this.#onError(new Error(`Cannot answer ${this.#request.method}: ${cause}`, { cause }));
    if (this.#caller === null) return;
    const message = `The agent failed to answer ${this.#request.method}; its log says why`;
    this.error({ code: INTERNAL_ERROR, message });
  }

  #answer(line: string | null, lock?: PassedLock): void {
    const caller = this.#caller!;
    this.#caller = null;
    caller.answer(line, lock);
  }

  #answeredTwice(): void {
    this.#onError(new Error(`A request for ${this.#request.method} was answered twice`));
  }
}
