/**
 * A map that is remembered on disk, as a log of what was set and deleted. Each entry knows in which
 * boot of the machine it was set.
 *
 * Lines: `{"boot":ID}` (what follows was written in that boot), `{"key":K,"value":V}` and
 * `{"key":K}` (deleted).
 * @module
 */
import { PassingMap } from "../lease/passing_map.ts";
import { AppendLog, type OpenedLog } from "./append_log.ts";

/** Rewriting starts here: some ten thousand lines, replayed in a few hundredths of a second. */
const REWRITE_BYTES = 1024 * 1024;

/** Nobody's key, as long as entries are: where there is room for it, there is room for those. */
const TRIAL_KEY = " ".repeat(256);

/** How much is appended before a rewrite that failed is tried again. */
const RETRY_BYTES = 64 * 1024;

/** How a {@linkcode LogMap} is kept. */
export interface LogMapOptions<V> {
  /** The id of the machine's present boot. */
  readonly boot: string;
  /** Whether entries have to survive a crash of the machine, too. */
  readonly durable: boolean;
  /** The most entries kept when it is opened, newest first. */
  readonly limit?: number;
  /** Reads a value as it was in the file; null if it is none. */
  readonly decode: (value: unknown) => V | null;
}

/** A value, and the boot in which it was set. */
export interface LogEntry<V> {
  readonly value: V;
  readonly boot: string;
}

/**
 * A map in memory with its log. Memory is the truth: where the disk cannot follow, the method says
 * why, and the log is put right as soon as the disk takes it.
 */
export class LogMap<V> {
  readonly #log: AppendLog;
  readonly #boot: string;
  readonly #entries = new PassingMap<string, LogEntry<V>>();
  /** The lines that could not be read when it was opened; a cut last line is not among them. */
  readonly damage: readonly string[];
  /** Why the log is behind memory; null while it is not. */
  #problem: string | null = null;
  /** Whether the log says that what is appended belongs to this boot. */
  #marked = false;
  #rewriteAt = REWRITE_BYTES;
  /** Lines that are yet to be written. */
  #queue: string[] = [];

  private constructor(opened: OpenedLog, options: LogMapOptions<V>) {
    this.#log = opened.log;
    this.#boot = options.boot;
    this.damage = this.#replay(opened, options);
    const surplus = this.#entries.size - (options.limit ?? Infinity);
    for (const key of [...this.#entries.keys()].slice(0, Math.max(surplus, 0))) {
      this.#entries.delete(key);
    }
  }

  /**
   * Opens or creates the map's log and rewrites it without what is past.
   *
   * @throws what `node:fs` throws when it cannot be opened or read.
   */
  static open<V>(path: string, options: LogMapOptions<V>): LogMap<V> {
    const map = new LogMap(AppendLog.open(path, options), options);
    if (map.#log.size > 0) map.#rewrite();
    return map;
  }

  /** The entries, oldest first. */
  get entries(): Readonly<PassingMap<string, LogEntry<V>>> {
    return this.#entries;
  }

  /** Writes what could not be written before. Returns null once the log has all, or why it has not. */
  catchUp(): string | null {
    if (this.#problem === null) return null;
    // By a trial first: where nothing is left to be written, a rewrite succeeds on a full disk, too.
    const failed = this.tryWrite();
    return failed ?? (this.#problem === null ? null : this.#rewrite());
  }

  /** Why the log is behind memory, such as a full disk; null while it is not. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Sets an entry; it becomes the newest. Returns null once it is written, or why it is not. */
  set(key: string, value: V): string | null {
    this.#entries.delete(key);
    this.#entries.set(key, { value, boot: this.#boot });
    return this.#append(line(key, value));
  }

  /** Sets an entry, in memory now and on disk with the next {@linkcode flush}. */
  setLater(key: string, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, { value, boot: this.#boot });
    this.#queue.push(line(key, value));
  }

  /** Deletes an entry in the same way. */
  deleteLater(key: string): void {
    if (this.#entries.delete(key)) this.#queue.push(line(key));
  }

  /** Writes what was put off, at once and by one write. Returns null, or why it is not written. */
  flush(): string | null {
    return this.#queue.length === 0 ? null : this.#append();
  }

  /** Tries to write, whether or not there is something to be written. Returns null, or why it is not. */
  tryWrite(): string | null {
    // The end of an entry that there never was. A rewrite would need no room where nothing is left.
    return this.#append(line(TRIAL_KEY));
  }

  /** Drops an entry that could not be written, from memory alone. */
  forget(key: string): void {
    this.#entries.delete(key);
  }

  /** Deletes an entry. Returns null once that is written or if there was none, or why it is not. */
  delete(key: string): string | null {
    return this.#entries.delete(key) ? this.#append(line(key)) : null;
  }

  /** Keeps only the entries that `keep` wants. Returns null, or why the log still has the others. */
  retain(keep: (entry: LogEntry<V>, key: string) => boolean): string | null {
    const before = this.#entries.size;
    for (const [key, entry] of this.#entries) if (!keep(entry, key)) this.#entries.delete(key);
    return this.#entries.size === before ? null : this.#rewrite();
  }

  /** Closes the log; the map is not changed afterwards. */
  close(): void {
    this.flush();
    this.#log.close();
  }

  /** Writes lines, after those that were put off. */
  #append(...texts: readonly string[]): string | null {
    const lines = this.#queue;
    this.#queue = [];
    lines.push(...texts);
    if (!this.#marked) lines.unshift(bootLine(this.#boot));
    const failed = this.#log.append(lines);
    if (failed) {
      this.#rewriteAt = 0; // as soon as there is room
      return this.#problem = failed;
    }
    this.#marked = true;
    // The line is on disk: what a rewrite meets is a problem, but not this caller's.
    if (this.#log.size > this.#rewriteAt) this.#rewrite();
    return null;
  }

  #rewrite(): string | null {
    const lines: string[] = [];
    let boot: string | null = null;
    for (const [key, entry] of this.#entries) {
      if (entry.boot !== boot) lines.push(bootLine(boot = entry.boot));
      lines.push(line(key, entry.value));
    }
    this.#problem = this.#log.rewrite(lines);
    this.#marked = false;
    // Where much is alive, a rewrite is paid for by as much appending.
    const { size } = this.#log;
    this.#rewriteAt = this.#problem ? size + RETRY_BYTES : Math.max(REWRITE_BYTES, 2 * size);
    return this.#problem;
  }

  /** Applies the lines of the file; returns what could not be read. */
  #replay(opened: OpenedLog, options: LogMapOptions<V>): string[] {
    const damage: string[] = [];
    let boot = "";
    const apply = (text: string): boolean => {
      const record = parse(text);
      if (typeof record?.boot === "string") boot = record.boot;
      else if (typeof record?.key !== "string") return false;
      else if (!("value" in record)) this.#entries.delete(record.key);
      else {
        const value = options.decode(record.value);
        if (value === null) return false;
        this.#entries.delete(record.key);
        this.#entries.set(record.key, { value, boot });
      }
      return true;
    };
    opened.lines.forEach((text, index) => {
      if (!apply(text)) damage.push(`${opened.log.path}:${index + 1}: cannot be read`);
    });
    // Whole but for its newline it counts: no line is the beginning of another.
    apply(opened.tail);
    return damage;
  }
}

function line(key: string, value?: unknown): string {
  return JSON.stringify({ key, value });
}

function bootLine(boot: string): string {
  return JSON.stringify({ boot });
}

function parse(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" ? value as Record<string, unknown> | null : null;
  } catch {
    return null;
  }
}
