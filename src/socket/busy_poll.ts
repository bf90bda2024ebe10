/**
 * Busy polling: while a client waits for an answer that comes from the coordinator, the event loop turns
 * without sleeping. A near coordinator answers in about a tenth of a millisecond, and a process that sleeps
 * meanwhile loses a quarter more to being woken. It is paid for in processor, as the kernel's own busy
 * polling of sockets and halt polling of guests are (SO_BUSY_POLL, haltpoll), from which it is borrowed
 * that a poll is short, and that polls in vain make it rare.
 * @module
 */
import { availableParallelism } from "node:os";

/**
 * How long is polled for one request, ms: twice what the answer of a near coordinator takes. Of one that
 * takes longer, the way back into a process that sleeps is a small part.
 */
const LIMIT_MS = 0.2;

/** How many requests are not polled for, at most, after polls in vain: then it is tried again. */
const MAX_SKIPPED = 256;

/** What {@linkcode BusyPoll} goes by. */
export interface BusyPollOptions {
  /** Any clock, in milliseconds and their fractions. */
  readonly nowMs?: () => number;
  /** Calls once everything that is there to be read was read, without waiting for more. */
  readonly nextTurn?: (call: () => void) => void;
  /** How many processors there are: who polls on the only one keeps it from whoever would answer. */
  readonly processors?: number;
}

/** Keeps the event loop awake while requests that came just now have no answer. One for all connections. */
export class BusyPoll {
  readonly #nowMs: () => number;
  readonly #nextTurn: (call: () => void) => void;
  readonly #enabled: boolean;
  /** Requests of this poll that have no answer yet. */
  #awaited = 0;
  #untilMs = 0;
  #polling = false;
  /** Whether this poll saw an answer. */
  #paid = false;
  #skip = 0;
  #skipNext = 1;

  constructor(options: BusyPollOptions = {}) {
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#nextTurn = options.nextTurn ?? setImmediate;
    this.#enabled = (options.processors ?? availableParallelism()) > 1;
  }

  /** A request was taken whose answer does not come within this turn of the event loop. */
  awaitAnswer(): void {
    if (!this.#enabled) return;
    if (this.#skip > 0) {
      this.#skip--;
      return;
    }
    this.#awaited++;
    this.#untilMs = this.#nowMs() + LIMIT_MS;
    if (this.#polling) return;
    this.#polling = true;
    this.#nextTurn(this.#turn);
  }

  /** A request that had to wait was answered, whether or not it is polled for. */
  answered(): void {
    if (this.#awaited === 0) return;
    this.#awaited--;
    this.#paid = true;
  }

  readonly #turn = (): void => {
    if (this.#awaited > 0 && this.#nowMs() < this.#untilMs) this.#nextTurn(this.#turn);
    else this.#end();
  };

  #end(): void {
    this.#polling = false;
    this.#awaited = 0;
    if (this.#paid) {
      this.#skipNext = Math.max(this.#skipNext / 2, 1);
    } else {
      this.#skip = this.#skipNext;
      this.#skipNext = Math.min(this.#skipNext * 2, MAX_SKIPPED);
    }
    this.#paid = false;
  }
}
