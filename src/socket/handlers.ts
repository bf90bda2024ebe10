/**
 * What the server asks of whoever answers the requests: callbacks, no promise a request.
 * @module
 */
import type { Refusal } from "../lease/errors.ts";
import type { Peer } from "./peers.ts";
import type { Method, Methods, Notifications } from "./protocol.ts";

/** The descriptor to pass, as of the moment at which it is passed; throws where it is not open any more. */
export type PassedLock = () => number;

/** Answers one request, exactly once, now or later. After the connection closed it does nothing. */
export interface Reply<R> {
  /**
   * Answers with `result`. The descriptor that `lock` names goes along as SCM_RIGHTS, after everything
   * answered before, which can be later than now. So it is asked then: a number that was kept may be
   * another file's by that time. If it throws, there is none any more, and the connection is closed.
   */
  ok(result: R, lock?: PassedLock): void;
  /** Answers with an error. */
  fail(refusal: Refusal): void;
}

/** A client's connection, as handlers see it. */
export interface ConnectionHandle {
  /** Counts up from 1 over the server's life. */
  readonly id: number;
  readonly peer: Peer;
  /** True from the moment nothing can be sent any more; `onClose` follows, never from within a call. */
  readonly closed: boolean;
  /** Whatever the handlers keep with the connection. */
  data: unknown;
  /** Sends a notification; nothing if the connection is closed. */
  notify<M extends keyof Notifications>(method: M, params: Notifications[M]): void;
  /**
   * Whether the client reads more slowly than it is written to. Whoever has much to tell (the first
   * state of a watch, many changes at once) stops while this is true and goes on from
   * {@linkcode onDrain}: at 8 MiB of backlog the client is cut off.
   */
  readonly congested: boolean;
  /** Calls `callback` once when the client has caught up; never from within this call, nor if it is cut off. */
  onDrain(callback: () => void): void;
}

/** Answers `method`: calls `reply` once, now or later. What it throws is answered as internal error. */
export type Handler<M extends Method> = (
  params: Methods[M]["filled"],
  connection: ConnectionHandle,
  reply: Reply<Methods[M]["result"]>,
) => void;

/** A handler for each method that this agent knows. */
export type Handlers = { readonly [M in Method]?: Handler<M> };
