/**
 * The daemon's life: ready, running, draining, over; and what systemd is told of it.
 * @module
 */
import type { Agent } from "../agent/agent.ts";
import { atMost } from "../lease/duration_text.ts";
import type { Problem } from "../nats/listener.ts";
import type { Log } from "../service/log.ts";
import { type Notifier, openNotifier } from "../service/notify.ts";
import { EXIT_CONFIG } from "../sys/exit.ts";
import { feedWatchdog } from "./heartbeat.ts";

/**
 * How long READY waits for the coordinator: one that is down at boot must not keep the host's agent
 * from serving refusals.
 */
const READY_AFTER_MS = 5_000;

/** How long callers that wait at an inherited socket wait to learn whether there is a coordinator. */
const SETTLED_AFTER_MS = 1_500;

/** How often systemd's status line is looked at; it is told when it is another. */
const STATUS_MS = 5_000;

/**
 * While draining, systemd is asked for this much more time again and again: enough for the releases
 * after the last grant, and for being late.
 */
const EXTEND_MS = 15_000;
const EXTEND_EVERY_MS = 2_000;

/** What a {@linkcode Lifetime} is made of. */
export interface LifetimeOptions {
  /** Called when the agent exists. */
  readonly agent: () => Agent;
  readonly log: Log;
  /** The coordinator in a few words. */
  readonly coordinator: () => string;
}

/** The life of one daemon. */
export class Lifetime {
  readonly #options: LifetimeOptions;
  readonly #notifier: Notifier;
  readonly #ended: Promise<number>;
  #end!: (exit: number) => void;
  /** Resolves once it is known whether the coordinator can be reached, or soon all the same. */
  readonly settled: Promise<void>;
  #settle!: () => void;
  #listening = false;
  #reached = false;
  #ready = false;
  #told = "";
  #stops: (() => void)[] = [];

  constructor(options: LifetimeOptions) {
    this.#options = options;
    this.#notifier = openNotifier(process.env, {
      onError: (error) => options.log.event("warn", "notify_failed", { message: error.message }),
    });
    this.#ended = new Promise((resolve) => this.#end = resolve);
    this.settled = new Promise((resolve) => this.#settle = resolve);
    this.#later(SETTLED_AFTER_MS, () => this.#settle());
  }

  /** The coordinator was reached. */
  onReached(): void {
    this.#reached = true;
    this.#settle();
    if (this.#listening) this.#beReady();
  }

  /** The coordinator could not be reached, this time. */
  onUnreachable(): void {
    this.#settle();
  }

  /** The coordinator contradicts the setup: fatal while starting, a refusal later. */
  onFatal(problem: Problem): void {
    if (this.#ready) return;
    this.#options.log.event("error", "failed", { message: problem.message, exit: EXIT_CONFIG });
    this.#end(EXIT_CONFIG);
  }

  /** Lives from the moment the socket answers until a signal was obeyed. */
  async run(): Promise<number> {
    this.#listening = true;
    if (this.#reached) this.#beReady();
    else {
      this.#notifier.status("starting: waiting for the coordinator");
      this.#later(READY_AFTER_MS, () => this.#beReady());
    }
    const stop = (signal: string) => this.#drain(signal);
    // For good: a signal that comes while everything is being closed must not cut that short.
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
    try {
      return await this.#ended;
    } finally {
      for (const stop of this.#stops) stop();
    }
  }

  /** Runs a reload, of which systemd is told. */
  async reload(act: () => Promise<void>): Promise<void> {
    if (!this.#ready || this.#draining) return await act();
    this.#notifier.reloading();
    await act();
    this.#notifier.ready(this.#statusLine());
  }

  /** The process is about to end. */
  close(): void {
    this.#notifier.close();
  }

  get #draining(): boolean {
    return this.#options.agent().state === "draining";
  }

  #beReady(): void {
    if (this.#ready) return;
    this.#ready = true;
    this.#options.log.event("info", "ready", { coordinator: this.#reached });
    if (this.#draining) return;
    this.#told = this.#statusLine();
    this.#notifier.ready(this.#told);
    this.#every(STATUS_MS, () => this.#tellStatus());
    this.#stops.push(feedWatchdog(this.#notifier, this.#options.agent));
  }

  #tellStatus(): void {
    const line = this.#statusLine();
    if (line === this.#told) return;
    this.#told = line;
    this.#notifier.status(line);
  }

  #statusLine(): string {
    const agent = this.#options.agent();
    const { held, waiting, foreign, grants } = agent.counts();
    const facts = `${held} held, ${waiting} waiting, ${foreign} elsewhere, ${grants} grants out`;
    if (this.#draining) return `draining, at most ${atMost(agent.drains.leftMs)} more; ${facts}`;
    const { all } = agent.drains.stepDowns;
    const stepDown = all === null ? "" : `stepped down from every store until ${all.until}; `;
    return `${stepDown}${facts}; ${this.#options.coordinator()}`;
  }

  /** The first signal starts the drain; later ones change nothing: leases are never dropped unsafely. */
  #drain(signal: string): void {
    const agent = this.#options.agent();
    const { log } = this.#options;
    if (this.#draining) return log.event("info", "draining_already", { signal });
    const { drainMs } = agent.options;
    const { grants } = agent.counts();
    log.event("info", "draining", { signal, drain_ms: drainMs, grants });
    let over = false;
    agent.drain(({ released, aging, remaining }) => {
      over = true;
      log.event(remaining === 0 ? "info" : "warn", "drained", { released, aging, remaining });
      this.#end(0);
    });
    this.#notifier.stopping(this.#statusLine());
    if (over) return;
    this.#askForTime();
    this.#every(EXTEND_EVERY_MS, () => this.#askForTime());
  }

  #askForTime(): void {
    this.#notifier.extendTimeout(EXTEND_MS);
    this.#tellStatus();
  }

  #every(periodMs: number, act: () => void): void {
    const timer = setInterval(act, periodMs);
    this.#stops.push(() => clearInterval(timer));
  }

  #later(delayMs: number, act: () => void): void {
    const timer = setTimeout(act, delayMs);
    this.#stops.push(() => clearTimeout(timer));
  }
}
