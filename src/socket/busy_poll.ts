/**
 * Busy polling: while several requests wait for the coordinator, the event loop turns without sleeping.
 * Where clients queue for one store each grant waits for the one before, through four wakeups of another
 * process; without those of the agent they follow each other a third faster. One client alone gains
 * nothing from it, so nothing is polled for it.
 *
 * It is paid for in processor, as the kernel's own busy polling of sockets and halt polling of guests are
 * (SO_BUSY_POLL, haltpoll), from which it is borrowed that each poll is short.
 * @module
 */
import { availableParallelism } from "node:os";

/**
 * How long is polled for one request, ms: twice what the answer of a near coordinator takes. Of one that
 * takes longer, the way back into a process that sleeps is a small part.
 */
const LIMIT_MS = 0.2;

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
  /** Requests without an answer; none, once nothing came for so long that nothing is polled for. */
  #awaited = 0;
  #untilMs = -Infinity;
  #polling = false;

  constructor(options: BusyPollOptions = {}) {
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#nextTurn = options.nextTurn ?? setImmediate;
    this.#enabled = (options.processors ?? availableParallelism()) > 1;
  }

  /** A request was taken whose answer does not come within this turn of the event loop. */
  awaitAnswer(): void {
    if (!this.#enabled) return;
    const nowMs = this.#nowMs();
    if (nowMs >= this.#untilMs) this.#awaited = 0;
    this.#awaited++;
    this.#untilMs = nowMs + LIMIT_MS;
    if (this.#polling || this.#awaited < 2) return;
    this.#polling = true;
    this.#nextTurn(this.#turn);
  }

  /** A request that had to wait was answered, whether or not it is polled for. */
  answered(): void {
    if (this.#awaited > 0) this.#awaited--;
  }

  readonly #turn = (): void => {
    this.#polling = this.#awaited > 0 && this.#nowMs() < this.#untilMs;
    if (this.#polling) this.#nextTurn(this.#turn);
  };
}
