/**
 * Keeps a log readable while something happens again and again.
 * @module
 */
import type { Log, LogFields, LogLevel } from "./log.ts";

/** How long repeats are counted together. */
const WINDOW_MS = 60_000;

/** How many of a kind are told of one thing in a window: enough to see a pattern. */
const MAX_REPEATS = 5;

/** So many kinds are told apart; in a storm beyond that, memory stays bounded and all is told. */
const MAX_KINDS = 10_000;

interface Kind {
  readonly event: string;
  readonly about: string;
  seen: number;
}

/**
 * Tells an event about one thing (a store, a check) at most five times a minute, then counts; the
 * counts follow as `repeated`. Different stores are different things, so each transition of a large
 * host is told. Debug events are what somebody asked for: they are never held back.
 */
export class QuietLog implements Log {
  readonly #log: Log;
  readonly #kinds = new Map<string, Kind>();
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(log: Log, windowMs = WINDOW_MS) {
    this.#log = log;
    this.#timer = setInterval(() => this.#turn(), windowMs);
    this.#timer.unref();
  }

  event(level: LogLevel, event: string, fields: LogFields = {}): void {
    if (level === "debug" || this.#mayTell(event, fields)) this.#log.event(level, event, fields);
  }

  /** Tells what is still only counted. */
  close(): void {
    clearInterval(this.#timer);
    this.#turn();
  }

  #mayTell(event: string, { store, check }: LogFields): boolean {
    const about = String(store ?? check ?? "");
    const key = `${event} ${about}`;
    const kind = this.#kinds.get(key);
    if (kind !== undefined) return ++kind.seen <= MAX_REPEATS;
    if (this.#kinds.size < MAX_KINDS) this.#kinds.set(key, { event, about, seen: 1 });
    return true;
  }

  #turn(): void {
    for (const { event, about, seen } of this.#kinds.values()) {
      if (seen <= MAX_REPEATS) continue;
      const thing = about === "" ? {} : { about };
      this.#log.event("warn", "repeated", { of: event, ...thing, times: seen - MAX_REPEATS });
    }
    this.#kinds.clear();
  }
}
