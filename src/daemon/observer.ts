/**
 * What happens, as log events: each transition once, refusals counted and summarised.
 * @module
 */
import type { Observer } from "../agent/types.ts";
import type { Kind } from "../lease/errors.ts";
import { shownPurpose } from "../lease/purpose.ts";
import type { LeaseNote } from "../lease/state.ts";
import type { Log } from "../service/log.ts";

/** How often refusals are summarised. */
const SUMMARY_MS = 60_000;

/** Logs what the agent tells. */
export class LogObserver implements Observer {
  /** Hears everything, too: the metrics, where there are any. */
  also: Observer | null = null;
  readonly #log: Log;
  readonly #refused = new Map<Kind, number>();
  readonly #foreign = new Set<string>();
  #timer: ReturnType<typeof setInterval>;

  constructor(log: Log) {
    this.#log = log;
    this.#timer = setInterval(() => this.#summarise(), SUMMARY_MS);
    this.#timer.unref();
  }

  note(store: string, note: LeaseNote): void {
    this.also?.note(store, note);
    switch (note.type) {
      case "acquired":
        this.#foreign.delete(store);
        this.#log.event("info", "acquired", { store, epoch: note.epoch });
        if (note.graceMs > 0) this.#log.event("info", "grace", { store, grace_ms: note.graceMs });
        return;
      case "proven":
        return this.#log.event("debug", "renewed", { store, took_ms: note.tookMs });
      case "lost":
        return this.#log.event("warn", "lost", { store, epoch: note.epoch, reason: note.reason });
      case "released":
        return this.#released(store, note);
      case "stale":
        return this.#log.event("error", "stale_epoch", {
          store,
          epoch: note.epoch,
          recorded: note.recorded,
        });
      case "foreign":
        // Asked again every few seconds, told once.
        if (this.#foreign.has(store)) return;
        this.#foreign.add(store);
        return this.#log.event("info", "foreign", { store });
      case "unfit":
        return note.why === null
          ? this.#log.event("info", "fit", { store })
          : this.#log.event("warn", "unfit", { store, why: note.why });
      case "vacant":
      case "unreachable":
      case "stuck":
        return this.#log.event("debug", note.type, { store, ...note });
    }
  }

  #released(store: string, { epoch, clean, deleted }: Extract<LeaseNote, { type: "released" }>) {
    if (deleted) return this.#log.event("info", "released", { store, epoch, clean });
    const message = `its entry is left to age out, and the next holder owes ${
      clean ? "no" : "a"
    } grace`;
    this.#log.event("info", "left", { store, epoch, message });
  }

  guarded(store: string, outcome: "granted" | Kind, tookMs: number, purpose?: string): void {
    this.also?.guarded(store, outcome, tookMs);
    if (outcome !== "granted") this.#refused.set(outcome, (this.#refused.get(outcome) ?? 0) + 1);
    this.#log.event("debug", outcome === "granted" ? "granted" : "refused", {
      store,
      ...(outcome === "granted" ? {} : { kind: outcome }),
      took_ms: Math.round(tookMs * 1_000) / 1_000,
      ...(purpose === undefined ? {} : { purpose: shownPurpose(purpose) }),
    });
  }

  grantLost(store: string, kind: Kind, pid: number): void {
    this.#log.event("warn", "grant_lost", { store, kind, pid });
  }

  problem(name: string, problem: string | null): void {
    if (problem === null) this.#log.event("info", "problem_over", { check: name });
    else this.#log.event("error", "problem", { check: name, message: problem });
  }

  /** Writes the last summary and stops. */
  close(): void {
    clearInterval(this.#timer);
    this.#summarise();
  }

  #summarise(): void {
    if (this.#refused.size === 0) return;
    this.#log.event("info", "refused", Object.fromEntries(this.#refused));
    this.#refused.clear();
  }
}
