/**
 * The log: one JSON object a line, or text for people, on stderr.
 *
 * Under journald each line carries its priority in front (sd-daemon(3)) and no time: the journal
 * keeps both, and shows the time itself.
 * @module
 */
import { fstatSync } from "node:fs";
import pino from "pino";
import { visible, visibleJson } from "../sys/visible.ts";
import { LogFile } from "./log_file.ts";
import type { Lines } from "./log_file.ts";

/** How much is logged. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** Facts of an event, beside its name: `store`, `epoch`, `message`… Nothing secret. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Where events go. */
export interface Log {
  /** Logs an event under its stable name. */
  event(level: LogLevel, event: string, fields?: LogFields): void;
}

/** How to log. */
export interface LogOptions {
  readonly format: "json" | "text";
  readonly level: LogLevel;
  /** Default 2: stderr. */
  readonly fd?: number;
  /** Whether the journal reads it; see {@linkcode isJournal}. */
  readonly journal?: boolean;
}

/** Opens the log. */
export function openLog(options: LogOptions): Log {
  const file = new LogFile(options.fd ?? 2);
  const destination = new VisibleStream(file);
  const stream = options.journal ? new JournalStream(destination) : destination;
  const log = options.format === "text"
    ? new TextLog(stream, options.level, !options.journal)
    : jsonLog(stream, options);
  return {
    event: (level, event, fields) => {
      log.event(level, event, fields);
      const lines = file.takeLost();
      if (lines > 0) log.event("warn", "log_lost", { lines });
    },
  };
}

function jsonLog(stream: Lines, { level, journal = false }: LogOptions): Log {
  const logger = pino({
    level,
    base: null,
    timestamp: journal ? false : () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label) => ({ level: label }) },
  }, stream);
  return {
    event: (at, event, fields) => {
      // Asked before anything is made of the fields: of most events of a guard, nothing is logged.
      if (logger.isLevelEnabled(at)) logger[at]({ event, ...rounded(fields) as LogFields });
    },
  };
}

/** Whether descriptor `fd` is the journal's, as `JOURNAL_STREAM` says in `env`. */
export function isJournal(env: Readonly<Record<string, string | undefined>>, fd = 2): boolean {
  if (env.JOURNAL_STREAM === undefined) return false;
  const { dev, ino } = fstatSync(fd);
  return env.JOURNAL_STREAM === `${dev}:${ino}`;
}

/**
 * Names, keys and messages of other hosts are read at a terminal, too. In either format they stand in
 * quotes if there is anything to hide in them.
 */
class VisibleStream implements Lines {
  readonly #destination: Lines;

  constructor(destination: Lines) {
    this.#destination = destination;
  }

  write(line: string): void {
    this.#destination.write(`${visibleJson(line.slice(0, -1))}\n`);
  }
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

/** What syslog(3) calls the levels. */
const PRIORITY: Readonly<Record<LogLevel, string>> = {
  debug: "<7>",
  info: "<6>",
  warn: "<4>",
  error: "<3>",
};

/** Puts the priority in front of each line, whichever format says the level at its beginning. */
class JournalStream implements Lines {
  readonly #destination: Lines;

  constructor(destination: Lines) {
    this.#destination = destination;
  }

  write(line: string): void {
    const [, level] = /^(?:\{"level":")?([a-z]+)/.exec(line) ?? [];
    this.#destination.write(`${PRIORITY[level as LogLevel] ?? ""}${line}`);
  }
}

class TextLog implements Log {
  readonly #destination: Lines;
  readonly #level: number;
  readonly #withTime: boolean;

  constructor(destination: Lines, level: LogLevel, withTime: boolean) {
    this.#destination = destination;
    this.#level = LEVELS.indexOf(level);
    this.#withTime = withTime;
  }

  event(level: LogLevel, event: string, fields: LogFields = {}): void {
    if (LEVELS.indexOf(level) < this.#level) return;
    const facts = Object.entries(rounded(fields) as LogFields).map(([name, value]) =>
      factText(name, value)
    );
    const time = this.#withTime ? `${new Date().toISOString()} ` : "";
    this.#destination.write(`${time}${level.padEnd(5)} ${event}${facts.join("")}\n`);
  }
}

/** ` name=value`; the members of an object each as ` name.member=value`. */
function factText(name: string, value: unknown): string {
  if (typeof value !== "object" || value === null) return ` ${name}=${textOf(value)}`;
  if (Array.isArray(value)) return ` ${name}=${textOf(value.map(plainText).join(","))}`;
  return Object.entries(value).map(([member, each]) => factText(`${name}.${member}`, each)).join(
    "",
  );
}

function plainText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "undefined";
}

function textOf(value: unknown): string {
  const text = plainText(value);
  return /^[^\s"=]+$/.test(text) && visible(text) === text ? text : JSON.stringify(text);
}

/**
 * Numbers to three decimals: of milliseconds, nobody needs more than microseconds. Whole numbers stay as
 * they are: an epoch has too many digits to be multiplied.
 */
function rounded(value: unknown): unknown {
  if (Number.isInteger(value)) return value;
  if (typeof value === "number") return Math.round(value * 1_000) / 1_000;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(rounded);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, rounded(each)]));
}
