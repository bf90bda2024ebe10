/**
 * The log: one JSON object a line, or text for people, on stderr.
 * @module
 */
import pino from "pino";

/** How much is logged. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** Facts of an event, beside its name: `store`, `epoch`, `message`… Nothing secret. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Where events go. */
export interface Log {
  /** Logs an event under its stable name. */
  event(level: LogLevel, event: string, fields?: LogFields): void;
}

/** Opens the log on `fd` (2: stderr). */
export function openLog(
  options: { format: "json" | "text"; level: LogLevel; fd?: number },
): Log {
  const { format, level, fd = 2 } = options;
  // Synchronous: what was logged is written when the process dies the next moment.
  const destination = pino.destination({ fd, sync: true });
  if (format === "text") return new TextLog(destination, level);
  const logger = pino({
    level,
    base: null,
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label) => ({ level: label }) },
  }, destination);
  return { event: (at, event, fields) => logger[at]({ event, ...fields }) };
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

class TextLog implements Log {
  readonly #destination: { write(text: string): void };
  readonly #level: number;

  constructor(destination: { write(text: string): void }, level: LogLevel) {
    this.#destination = destination;
    this.#level = LEVELS.indexOf(level);
  }

  event(level: LogLevel, event: string, fields: LogFields = {}): void {
    if (LEVELS.indexOf(level) < this.#level) return;
    const facts = Object.entries(fields).map(([name, value]) => ` ${name}=${textOf(value)}`);
    const time = new Date().toISOString();
    this.#destination.write(`${time} ${level.padEnd(5)} ${event}${facts.join("")}\n`);
  }
}

function textOf(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return /^[^\s"=]+$/.test(text) ? text : JSON.stringify(text);
}
