/**
 * The daemon's life: ready, running, draining, over.
 * @module
 */
import type { Agent } from "../agent/agent.ts";
import type { Problem } from "../nats/listener.ts";
import type { Log } from "../service/log.ts";
import { type Notifier, openNotifier } from "../service/notify.ts";

/**
 * How long READY waits for the coordinator: one that is down at boot must not keep the host's agent
 * from serving refusals.
 */
const READY_AFTER_MS = 5_000;

/** How often systemd's status line is renewed. */
const STATUS_MS = 10_000;

/** The life of one daemon. */
export class Lifetime {
  readonly #agent: () => Agent;
  readonly #log: Log;
  readonly #notifier: Notifier;
  readonly #ended: Promise<number>;
  #end!: (exit: number) => void;
  #listening = false;
  #reached = false;
  #ready = false;
  #timers: ReturnType<typeof setInterval>[] = [];

  constructor({ agent, log }: { agent: () => Agent; log: Log }) {
    this.#agent = agent;
    this.#log = log;
    this.#notifier = openNotifier(process.env);
    this.#ended = new Promise((resolve) => this.#end = resolve);
  }

  /** The coordinator was reached. */
  onReached(): void {
    this.#reached = true;
    if (this.#listening) this.#beReady();
  }

  /** The coordinator contradicts the setup: fatal while starting, a refusal later. */
  onFatal(problem: Problem): void {
    if (this.#ready) return;
    this.#log.event("error", "failed", { message: problem.message, exit: problem.exit });
    this.#end(problem.exit ?? 78);
  }

  /** Lives from the moment the socket answers until a signal was obeyed. */
  async run(): Promise<number> {
    this.#listening = true;
    if (this.#reached) this.#beReady();
    else this.#later(READY_AFTER_MS, () => this.#beReady());
    const stop = (signal: string) => this.#drain(signal);
    // For good: a signal that comes while everything is being closed must not cut that short.
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
    try {
      return await this.#ended;
    } finally {
      for (const timer of this.#timers) clearInterval(timer);
      this.#notifier.close();
    }
  }

  #beReady(): void {
    if (this.#ready) return;
    this.#ready = true;
    this.#notifier.ready();
    this.#log.event("info", "ready", { coordinator: this.#reached });
    this.#tellStatus();
    this.#timers.push(setInterval(() => this.#tellStatus(), STATUS_MS));
    const { watchdogMs } = this.#notifier;
    if (watchdogMs !== null) {
      this.#timers.push(setInterval(() => this.#feedWatchdog(), watchdogMs / 3));
    }
  }

  /** Fed only while the stores' timers are served: they are what renews leases. */
  #feedWatchdog(): void {
    const agent = this.#agent();
    if (agent.overdueMs < (agent.timing?.ttlMs ?? Infinity) / 3) this.#notifier.watchdog();
  }

  #tellStatus(): void {
    const { held, waiting, foreign, grants } = this.#agent().counts();
    const waits = waiting > 0 ? `, ${waiting} not yet granting` : "";
    this.#notifier.status(`${held} held${waits}, ${foreign} elsewhere, ${grants} grants out`);
  }

  /** The first signal starts the drain; later ones change nothing: leases are never dropped unsafely. */
  #drain(signal: string): void {
    if (this.#agent().state === "draining") {
      return this.#log.event("info", "draining_already", { signal });
    }
    this.#log.event("info", "draining", { signal, drain_ms: this.#agent().options.drainMs });
    this.#notifier.stopping();
    this.#agent().drain(({ released, remaining }) => {
      const level = remaining === 0 ? "info" : "warn";
      this.#log.event(level, "drained", { released, remaining });
      this.#end(0);
    });
  }

  #later(delayMs: number, act: () => void): void {
    this.#timers.push(setTimeout(act, delayMs));
  }
}
