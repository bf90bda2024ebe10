/**
 * Requests in flight on one connection: many at once, answered in any order over one subscription,
 * each answered, timed out or cut off exactly once.
 * @module
 */
import { createInbox, type NatsConnection } from "@nats-io/transport-node";
import { PassingMap } from "../lease/passing_map.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { Outcome } from "../ports/coordinator.ts";
import { atTurnEnd } from "../sys/turn.ts";
import type { Denial } from "./denials.ts";
import type { Reply } from "./reply_reader.ts";
import type { Transport } from "./transport.ts";

/** What is to be sent. */
export interface Request<T> {
  readonly subject: string;
  readonly payload: string;
  /** The whole block, in ASCII. */
  readonly headers?: string;
  /** Reads the answer. A function of the module, so that a request costs no closure. */
  decode(reply: Reply): Outcome<T>;
  done(outcome: Outcome<T>): void;
}

interface Pending {
  readonly subject: string;
  readonly decode: (reply: Reply) => Outcome<unknown>;
  readonly done: (outcome: Outcome<never>) => void;
  readonly deadlineMs: number;
}

/**
 * A timer is later than this only where the process had no processor; and so long is enough to read
 * what came meanwhile. In milliseconds.
 */
const STALL_MS = 100;

/** What a table of requests needs. */
export interface RequestsOptions {
  readonly nc: NatsConnection;
  readonly transport: Transport;
  /** Whether what is published now goes to a live connection, and not to one that is yet to come. */
  isUp(): boolean;
  readonly clock: Clock;
  readonly timers: Timers;
  /** How long an answer is awaited, in milliseconds. The same for all, so the oldest is due first. */
  readonly timeoutMs: number;
  /** Called when the coordinator answered something else than an agent expects of its buckets. */
  onTrouble(): void;
  /** Called with the subject of each request that was answered; `decided`: not with an error. */
  onAnswer(subject: string, decided: boolean): void;
}

/** The requests in flight of one connection. */
export class Requests {
  readonly #options: RequestsOptions;
  /** By id, in the order sent, which is the order of the deadlines: ids are never used again. */
  readonly #pending = new PassingMap<number, Pending>();
  readonly #prefix = createInbox() + ".";
  readonly #timedOut: Outcome<never>;
  #lastId = 0;
  /** Commands of this turn of the event loop. */
  #unsent = "";
  #timerSet = false;
  /** Whether a timer that was late is followed by another, for the answers to be read first. */
  #stalled = false;
  #ended: string | null = null;

  constructor(options: RequestsOptions) {
    this.#options = options;
    this.#timedOut = {
      kind: "unknown",
      reason: `no answer from the coordinator within ${options.timeoutMs} ms`,
    };
    // The library knows of the subscription, but not of what comes by it.
    options.transport.takeReplies(this.#prefix, (id, reply) => this.#answered(id, reply));
    options.nc.subscribe(this.#prefix + "*", { callback: () => {} });
  }

  /** How many await their answer. */
  get size(): number {
    return this.#pending.size;
  }

  /**
   * Sends in this turn of the event loop, with whatever else it sends, or not at all; `done` is called
   * exactly once, later.
   */
  send<T>(request: Request<T>): void {
    const { isUp, clock, timeoutMs } = this.#options;
    if (this.#ended !== null || !isUp()) {
      refuse(request.done, this.#ended ?? "not connected to the coordinator");
      return;
    }
    const id = ++this.#lastId;
    if (this.#unsent === "") atTurnEnd("send", this.#flush);
    this.#unsent += commandOf(request, this.#prefix + id);
    const deadlineMs = clock.bootMs() + timeoutMs;
    const { subject, decode, done } = request;
    this.#pending.set(id, { subject, decode, done, deadlineMs });
    if (!this.#timerSet) this.#setTimer(timeoutMs);
  }

  readonly #flush = (): void => {
    const commands = this.#unsent;
    this.#unsent = "";
    if (this.#ended === null) this.#options.transport.write(commands);
  };

  /** Cuts off: all in flight become unknown now, later answers are dropped, nothing more is sent. */
  end(reason: string): void {
    if (this.#ended !== null) return;
    this.#ended = reason;
    const outcome: Outcome<never> = { kind: "unknown", reason };
    const all = [...this.#pending.values()];
    this.#pending.clear();
    for (const { done } of all) finish(done, outcome);
  }

  /** Whether it is our own subscription, by which answers come, that was denied. */
  hears({ operation, subject }: Denial): boolean {
    return operation === "subscription" && subject.startsWith(this.#prefix);
  }

  /**
   * The server denied a request on the subject: it becomes unknown now. So does every other one on it:
   * which one was denied the server does not tell, and unknown is always true.
   */
  denied(subject: string, reason: string): void {
    const outcome: Outcome<never> = { kind: "unknown", reason };
    const all = [...this.#pending].filter(([_, pending]) => pending.subject === subject);
    for (const [id] of all) this.#pending.delete(id);
    for (const [_, { done }] of all) finish(done, outcome);
  }

  #answered(id: number, reply: Reply): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return; // Too late: given up on, and its outcome told as unknown.
    this.#pending.delete(id);
    const outcome = pending.decode(reply) as Outcome<never>;
    this.#options.onAnswer(pending.subject, outcome.kind !== "unknown");
    if (isTrouble(outcome)) this.#options.onTrouble();
    finish(pending.done, outcome);
  }

  /** One timer for all, set to the oldest. */
  #setTimer(delayMs: number): void {
    const { clock, timers } = this.#options;
    const dueMs = clock.bootMs() + delayMs;
    this.#timerSet = true;
    timers.after(delayMs, () => {
      this.#timerSet = false;
      // We stood still ourselves: the answers may have come, and are read before anybody despairs.
      this.#stalled = !this.#stalled && clock.bootMs() - dueMs > STALL_MS;
      if (this.#stalled) this.#setTimer(STALL_MS);
      else this.#expire();
    });
  }

  #expire(): void {
    const nowMs = this.#options.clock.bootMs();
    const due: Pending[] = [];
    for (const [id, pending] of this.#pending) {
      if (pending.deadlineMs > nowMs) break;
      this.#pending.delete(id);
      due.push(pending);
    }
    // Before anybody is told: what the receiver of an outcome sends in turn is due after the oldest.
    const [oldest] = this.#pending.values();
    if (oldest !== undefined) this.#setTimer(oldest.deadlineMs - nowMs);
    for (const { done } of due) finish(done, this.#timedOut);
  }
}

/** A publication, as the protocol has it. */
function commandOf({ subject, payload, headers }: Request<unknown>, replyTo: string): string {
  const bytes = Buffer.byteLength(payload);
  if (headers === undefined) return `PUB ${subject} ${replyTo} ${bytes}\r\n${payload}\r\n`;
  const { length } = headers;
  return `HPUB ${subject} ${replyTo} ${length} ${length + bytes}\r\n${headers}${payload}\r\n`;
}

/**
 * Whether the bucket may not be what it was: it does not answer as it should, or has lost the entry
 * that was expected, as one that was made again.
 */
function isTrouble(outcome: Outcome<unknown>): boolean {
  return outcome.kind === "unknown" || (outcome.kind === "conflict" && outcome.lastRevision === 0);
}

/** Tells the outcome of a request that was never sent, but not before the call returned. */
export function refuse(done: (outcome: Outcome<never>) => void, reason: string): void {
  queueMicrotask(() => done({ kind: "unknown", reason }));
}

/**
 * An error in the receiver must neither keep the others from their outcomes nor end the client
 * library's loop of reading, which it would do silently.
 */
function finish(done: (outcome: Outcome<never>) => void, outcome: Outcome<never>): void {
  try {
    done(outcome);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
