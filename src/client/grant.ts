/**
 * A grant as its client sees it: its deadline, its end, and who is to hear of it.
 * @module
 */
import type { GuardResult, Notification } from "../socket/protocol.ts";
import type { BootClock } from "./clock.ts";
import type { Connection } from "./connection.ts";
import { LostError, NoTokenError } from "./errors.ts";
import type { Grant } from "./token.ts";

/** The longest delay that a timer takes. */
const MAX_TIMER_MS = 2_147_483_647;

/** What a {@linkcode LiveGrant} is made of. */
export interface LiveGrantOptions {
  readonly connection: Connection;
  readonly result: GuardResult;
  readonly clock: BootClock;
  /** The agent's socket, for programs that run under the grant. */
  readonly socket: string;
  /** The caller's signal, which also ends the write. */
  readonly signal?: AbortSignal;
  /** The agent's executable, where the lock is to pass to what runs under the grant. */
  readonly passLock?: string;
}

/** A grant of the agent. */
export class LiveGrant implements Grant {
  readonly store: string;
  readonly epoch: number;
  readonly node: string;
  readonly lockPath: string;
  readonly unguarded: string | null;
  readonly signal: AbortSignal;
  readonly lockPasser: string | null;
  readonly #connection: Connection;
  readonly #clock: BootClock;
  readonly #socket: string;
  readonly #secret: string;
  readonly #abort = new AbortController();
  /** By our clock. */
  #deadlineMs: number;
  /** What takes the agent's deadlines to our clock. */
  readonly #shiftMs: number;
  #refusal: NoTokenError | LostError | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor({ connection, result, clock, socket, signal, passLock }: LiveGrantOptions) {
    this.store = result.store;
    this.epoch = result.epoch;
    this.node = result.node;
    this.lockPath = result.lock_path;
    this.unguarded = result.unguarded;
    this.signal = signal === undefined
      ? this.#abort.signal
      : AbortSignal.any([signal, this.#abort.signal]);
    this.lockPasser = passLock ?? null;
    this.#connection = connection;
    this.#clock = clock;
    this.#socket = socket;
    this.#secret = result.token;
    // Counted from now the rest is too long by what the answer took. On the same clock the deadline
    // itself is exact; in a time namespace of our own it may be anything, so the earlier one counts.
    const fromNowMs = clock.nowMs() + result.remaining_ms;
    const toldMs = result.deadline_boot_ms;
    this.#deadlineMs = clock.isBootTime ? Math.min(fromNowMs, toldMs) : fromNowMs;
    this.#shiftMs = this.#deadlineMs - toldMs;
    connection.closed.then(() => this.#lose("the agent is gone, and the grant with it"));
    this.#setTimer();
  }

  /** What the agent calls it. */
  get secret(): string {
    return this.#secret;
  }

  get remainingMs(): number {
    return this.#refusal === null ? this.msToDeadline : 0;
  }

  get msToDeadline(): number {
    return Math.max(0, this.#deadlineMs - this.#clock.slackMs - this.#clock.nowMs());
  }

  get refusal(): NoTokenError | LostError | null {
    // Compared at use: timers can be late, and stand still in suspend.
    if (this.#refusal === null && this.remainingMs <= 0) this.#lose("its deadline has passed");
    return this.#refusal;
  }

  async verify({ signal }: { readonly signal?: AbortSignal }): Promise<void> {
    if (this.refusal !== null) throw this.refusal;
    const { store } = this;
    const sentMs = this.#clock.nowMs();
    try {
      const { remaining_ms } = await this.#connection.call(
        "verify",
        { token: this.#secret, store },
        { signal },
      );
      // The rest was longer when we asked.
      this.#deadlineMs = Math.max(this.#deadlineMs, sentMs + remaining_ms);
    } catch (error) {
      if (error instanceof LostError || error instanceof NoTokenError) {
        this.#lose(`the agent does not confirm it: ${error.message}`, error);
      }
      throw error;
    }
    // The guard may have ended, or we may have been held up, while the agent answered.
    if (this.refusal !== null) throw this.refusal;
    this.#setTimer();
  }

  environment(): Record<string, string> {
    return {
      ZIT_LEASE_STORE: this.store,
      ZIT_LEASE_EPOCH: String(this.epoch),
      ZIT_LEASE_TOKEN: this.#secret,
      ZIT_LEASE_NODE: this.node,
      ZIT_AGENT_SOCKET: this.#socket,
      ...(this.unguarded === null ? {} : { ZIT_LEASE_UNGUARDED: this.unguarded }),
    };
  }

  /** What the agent tells of this grant. */
  take({ method, params }: Notification): void {
    switch (method) {
      case "renewed":
        this.#deadlineMs = Math.max(this.#deadlineMs, params.deadline_boot_ms + this.#shiftMs);
        return this.#setTimer();
      case "expiring":
        return this.#abort.abort(
          new LostError(
            `The lease of ${this.store} runs out in ${Math.round(this.remainingMs)} ms and could ` +
              "not be renewed: stop writing",
          ),
        );
      case "lost":
        return this.#lose(params.message);
    }
  }

  /**
   * Ends the grant. From the moment of the call the token is refused.
   *
   * @throws {LostError} if the lease went before.
   */
  async end(): Promise<void> {
    const { refusal } = this;
    clearTimeout(this.#timer);
    if (refusal === null) {
      this.#refusal = new NoTokenError(`Cannot write to ${this.store}: the guard has ended`);
      // For what the write started and did not wait for.
      this.#abort.abort(this.#refusal);
    }
    try {
      // Also after a loss: the agent keeps the lock until it is told.
      await this.#connection.call("release", { token: this.#secret });
    } catch (error) {
      if (error instanceof LostError) throw refusal ?? error;
      // Whatever else: the grant does not outlive its connection, and was good until now.
    }
    if (refusal !== null) throw refusal;
  }

  #lose(why: string, cause?: unknown): void {
    if (this.#refusal !== null) return;
    clearTimeout(this.#timer);
    const message = `The lease of ${this.store} was lost while a write ran: ${why}`;
    this.#refusal = new LostError(message, { cause });
    this.#abort.abort(this.#refusal);
  }

  #setTimer(): void {
    clearTimeout(this.#timer);
    if (this.#refusal !== null) return;
    const leftMs = this.remainingMs;
    this.#timer = setTimeout(() => {
      if (this.refusal === null) this.#setTimer();
    }, Math.min(leftMs, MAX_TIMER_MS));
    // The write, not its deadline, keeps the process going.
    (this.#timer as { unref?: () => void }).unref?.();
  }
}
