/**
 * A grant as its client sees it: its deadline, its end, and who is to hear of it.
 *
 * Nothing here waits for the agent beyond the deadline, whatever became of the agent: it may stand still
 * with its connections open. What is asked for meanwhile is given up when the grant is over.
 * @module
 */
import type { GuardResult, Notification } from "../socket/protocol.ts";
import { within } from "./bounds.ts";
import type { BootClock } from "./clock.ts";
import type { Connection } from "./connection.ts";
import { Deadline } from "./deadline.ts";
import { LostError, NoTokenError } from "./errors.ts";
import { onAbort } from "./signals.ts";
import type { Grant, Program } from "./token.ts";

/** What a {@linkcode LiveGrant} is made of. */
export interface LiveGrantOptions {
  readonly connection: Connection;
  readonly result: GuardResult;
  readonly clock: BootClock;
  /** The agent's socket, for programs that run under the grant. */
  readonly socket: string;
  /** The caller's signal, which also ends the write. */
  readonly signal?: AbortSignal;
  /** The agent's executable, where the lock is to pass to what runs under the grant; else null. */
  readonly passLock: string | null;
}

/** A grant of the agent. */
export class LiveGrant implements Grant {
  readonly store: string;
  readonly epoch: number;
  readonly node: string;
  readonly lockPath: string;
  readonly unguarded: string | null;
  readonly lockPasser: string | null;
  /** Resolves when its guard has ended, and nothing runs under it any more. */
  readonly over: Promise<void>;
  #setOver!: () => void;
  readonly #connection: Connection;
  readonly #deadline: Deadline;
  readonly #socket: string;
  readonly #secret: string;
  readonly #abort = new AbortController();
  /** What runs, or has left processes behind. */
  readonly #programs = new Set<Program>();
  readonly #caller: AbortSignal | undefined;
  #refusal: NoTokenError | LostError | null = null;
  /** What gives up whoever waits for the agent; with the reason. */
  readonly #waiting = new Set<(reason: unknown) => void>();
  readonly #stopListening: () => void;

  constructor({ connection, result, clock, socket, signal, passLock }: LiveGrantOptions) {
    this.store = result.store;
    this.epoch = result.epoch;
    this.node = result.node;
    this.lockPath = result.lock_path;
    this.unguarded = result.unguarded;
    this.lockPasser = passLock;
    this.#connection = connection;
    this.#deadline = new Deadline(result, clock);
    this.#socket = socket;
    this.#secret = result.token;
    this.#caller = signal;
    this.over = new Promise((resolve) => this.#setOver = resolve);
    this.#stopListening = onAbort([signal], (reason) => {
      this.#stop(reason);
      this.#giveUp(reason);
    });
  }

  /** What the agent calls it. */
  get secret(): string {
    return this.#secret;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get remainingMs(): number {
    return this.#refusal === null ? this.msToDeadline : 0;
  }

  get msToDeadline(): number {
    return this.#deadline.msLeft;
  }

  get refusal(): NoTokenError | LostError | null {
    // Compared at use: timers can be late, and stand still in suspend.
    if (this.#refusal === null && this.remainingMs <= 0) this.#lose("its deadline has passed");
    return this.#refusal;
  }

  async verify({ signal }: { readonly signal?: AbortSignal }): Promise<void> {
    signal?.throwIfAborted();
    if (this.refusal !== null) throw this.refusal;
    const { store } = this;
    const confirmed = this.#deadline.ask();
    const answer = this.#connection.call("verify", { token: this.#secret, store });
    await this.#untilOver(
      answer.then(({ remaining_ms }) => confirmed(remaining_ms), (error) => {
        if (error instanceof LostError || error instanceof NoTokenError) {
          this.#lose(`the agent does not confirm it: ${error.message}`, error);
        }
        throw error;
      }),
      signal,
    );
    // The guard may have ended, or we may have been held up, while the agent answered.
    if (this.refusal !== null) throw this.refusal;
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

  keep(program: Program): void {
    this.#programs.add(program);
    void program.gone.then(() => this.#programs.delete(program));
    if (this.#abort.signal.aborted) void program.end(() => this.msToDeadline);
  }

  /** What the agent tells of this grant. */
  take({ method, params }: Notification): void {
    switch (method) {
      case "renewed":
        return this.#deadline.renewed(params.deadline_boot_ms);
      case "expiring":
        return this.#expire("could not be renewed");
      case "lost":
        return this.#lose(params.message);
    }
  }

  /** The connection is gone, or is to be closed from here: the write is to stop, as at any loss. */
  abandon(why: string): void {
    this.#lose(why);
    this.#giveUp(this.#refusal);
  }

  /**
   * Resolves when nothing writes under a grant that was abandoned. A write that does not heed its signal is
   * waited for until the deadline that is known now; then it may not go on in any case.
   */
  async settled(): Promise<void> {
    await within(this.over, { timeoutMs: this.msToDeadline }, () => null).catch(() => {});
    await Promise.all([...this.#programs].map(({ gone }) => gone));
  }

  /**
   * Does what the clock asks for; returns in how many ms to look again at the latest. An agent that
   * hangs says nothing, so what it would say by the clock is found here, too.
   */
  look(): number {
    const { state, lookInMs } = this.#deadline.look();
    if (state === "over") {
      this.#lose("its deadline has passed");
      this.#giveUp(this.#refusal);
    } else if (state === "near") {
      this.#expire("was not heard to be renewed: the agent may hang");
    }
    return lookInMs;
  }

  /**
   * Ends the grant. From the moment of the call the token is refused. What runs under it is ended before
   * the agent is told, so that whoever is next does not write beside it.
   *
   * The agent's answer is waited for until the deadline, and no longer once the caller's signal aborted.
   * The release is on its way by then; until the agent reads it the store stays taken, which harms
   * nobody, and it ends with the connection at the latest. That the lease was good until now is known
   * without the answer: its deadline had been confirmed.
   *
   * @throws {LostError} if the lease went before, or while what ran under it was being ended.
   */
  async end(): Promise<void> {
    const lost = this.refusal;
    if (lost === null) {
      this.#refusal = new NoTokenError(`Cannot write to ${this.store}: the guard has ended`);
      // For what the write started and did not wait for.
      this.#stop(this.#refusal);
      this.#giveUp(this.#refusal);
    }
    await this.#finish(lost).finally(() => {
      this.#stopListening();
      void Promise.all([...this.#programs].map(({ gone }) => gone)).then(this.#setOver);
    });
  }

  async #finish(lost: NoTokenError | LostError | null): Promise<void> {
    const late = await this.#endPrograms();
    const told = this.#release();
    // Also after a loss: the agent keeps the lock until it is told. What it says is known then.
    if (lost !== null || late !== null) throw lost ?? late;
    const loss = await told;
    if (loss !== null) throw loss;
  }

  /**
   * Ends what runs under the grant; returns the error if that took longer than the lease lasted.
   *
   * @throws {LostError} if somebody is left; the agent is told once nobody is.
   */
  async #endPrograms(): Promise<LostError | null> {
    const programs = [...this.#programs];
    const ended = await Promise.all(programs.map((each) => each.end(() => this.msToDeadline)));
    const left = programs.filter((_, i) => !ended[i]);
    const why = `The lease of ${this.store} was lost while what ran under it was being ended`;
    if (left.length === 0) {
      return programs.length === 0 || this.msToDeadline > 0 ? null : new LostError(why);
    }
    void Promise.all(left.map(({ gone }) => gone)).then(() => this.#release());
    const groups = left.map(({ pid }) => pid).join(", ");
    throw new LostError(
      `${why}: processes of the groups ${groups} were killed and have not ended; until they have, ` +
        "or this process ends, the store stays locked on this host",
    );
  }

  /** Tells the agent, and waits for the answer while that makes sense; with the loss it tells of. */
  #release(): Promise<LostError | null> {
    return new Promise((resolve) => {
      this.#connection.call("release", { token: this.#secret }).then(
        () => resolve(null),
        // Whatever else: the grant does not outlive its connection, and was good until now.
        (error) => resolve(error instanceof LostError ? error : null),
      );
      if (this.#caller?.aborted || this.msToDeadline <= 0) resolve(null);
      else this.#waiting.add(() => resolve(null));
    });
  }

  /** The answer, unless the grant is over or a signal aborts before. */
  async #untilOver<T>(answer: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    let giveUp: (reason: unknown) => void = () => {};
    const over = new Promise<never>((_, reject) => giveUp = reject);
    this.#waiting.add(giveUp);
    const stopListening = onAbort([signal], giveUp);
    try {
      return await Promise.race([answer, over]);
    } finally {
      stopListening();
      this.#waiting.delete(giveUp);
    }
  }

  #lose(why: string, cause?: unknown): void {
    if (this.#refusal !== null) return;
    const message = `The lease of ${this.store} was lost while a write ran: ${why}`;
    this.#refusal = new LostError(message, { cause });
    this.#stop(this.#refusal);
    this.#giveUp(this.#refusal);
  }

  #expire(why: string): void {
    this.#stop(
      new LostError(
        `The lease of ${this.store} runs out in ${Math.round(this.remainingMs)} ms and ${why}: ` +
          "stop writing",
      ),
    );
  }

  /** Has the write stop, and ends the programs that run under it. */
  #stop(reason: unknown): void {
    if (this.#abort.signal.aborted) return;
    this.#abort.abort(reason);
    for (const program of this.#programs) void program.end(() => this.msToDeadline);
  }

  /** Nobody waits for the agent any longer. */
  #giveUp(reason: unknown): void {
    for (const giveUp of this.#waiting) giveUp(reason);
    this.#waiting.clear();
  }
}
