/**
 * Keeps a log readable while something happens again and again, and true all the same: what it said last
 * of a thing is how that thing is, or was at most {@linkcode SETTLE_MS} ago.
 * @module
 */
import type { Log, LogFields, LogLevel } from "./log.ts";

/** How long lines of a thing are counted together, in milliseconds. */
const WINDOW_MS = 60_000;

/** How soon it is told what a thing has come to, where the line of it was held back; in milliseconds. */
const SETTLE_MS = 10_000;

/** How often one line is told of one thing in a window: enough to see a pattern. */
const MAX_REPEATS = 5;

/** So many different lines of one thing in a window are news; more are a storm of them. */
const MAX_NEWS = 10;

/** So many things are told apart; in a storm beyond that, memory stays bounded and all is told. */
const MAX_THINGS = 10_000;

interface Line {
  readonly level: LogLevel;
  readonly event: string;
  readonly fields: LogFields;
  /** What it says: lines that say the same are repeats. */
  readonly says: string;
}

/** A store, a check, or where a line is about neither, its event. */
interface Thing {
  /** What was said how often in this window. */
  readonly said: Map<string, number>;
  /** What the log says of it: the newest line told. */
  last: string;
  /** The newest line, where that was held back. */
  held: { readonly line: Line; readonly at: string } | null;
  /** How many were held back since one was told. */
  heldBack: number;
}

/**
 * Tells what is new about a thing (a store, a check) at once, and the same line at most five times a
 * minute. Lines beyond that are held back: the newest of them is told within seconds if the log would
 * say something else of that thing, and at the latest when the minute is over, with `at`, when it was,
 * and `repeated`, how many were held back. Different stores are different things, so each transition
 * of a large host is told. Debug events are what somebody asked for: they are never held back.
 */
export class QuietLog implements Log {
  readonly #log: Log;
  readonly #things = new Map<string, Thing>();
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #settlesPerWindow: number;
  #settled = 0;

  /** Both times are in milliseconds; the window is a multiple of the other. */
  constructor(log: Log, { windowMs = WINDOW_MS, settleMs = SETTLE_MS } = {}) {
    this.#log = log;
    this.#settlesPerWindow = Math.round(windowMs / settleMs);
    this.#timer = setInterval(() => this.settle(), settleMs);
    this.#timer.unref();
  }

  event(level: LogLevel, event: string, fields: LogFields = {}): void {
    if (level === "debug") return this.#log.event(level, event, fields);
    const { store, check, message, reason } = fields;
    const says = `${event} ${message ?? reason ?? ""}`;
    // A store may be called as a check is.
    const about = store === undefined ? `check ${check ?? event}` : `store ${store}`;
    const thing = this.#thing(about);
    const line = { level, event, fields, says };
    if (thing === null || mayTell(thing, says)) return this.#tell(thing, line);
    thing.held = { line, at: new Date().toISOString() };
    thing.heldBack++;
  }

  /** Tells what is still held back. */
  close(): void {
    clearInterval(this.#timer);
    this.#turn();
  }

  /** Tells what the log would say something else of. Called by a timer. */
  settle(): void {
    if (++this.#settled % this.#settlesPerWindow === 0) return this.#turn();
    for (const thing of this.#things.values()) {
      if (thing.held !== null && thing.held.line.says !== thing.last) this.#tellHeld(thing);
    }
  }

  /** Null: there are too many to know them all. */
  #thing(name: string): Thing | null {
    const known = this.#things.get(name);
    if (known !== undefined) return known;
    if (this.#things.size >= MAX_THINGS) return null;
    const thing: Thing = { said: new Map(), last: "", held: null, heldBack: 0 };
    this.#things.set(name, thing);
    return thing;
  }

  #tell(thing: Thing | null, { level, event, fields, says }: Line): void {
    const repeated = thing?.heldBack ?? 0;
    if (thing !== null) {
      thing.last = says;
      thing.held = null;
      thing.heldBack = 0;
    }
    this.#log.event(level, event, repeated === 0 ? fields : { ...fields, repeated });
  }

  #tellHeld(thing: Thing): void {
    const { line, at } = thing.held!;
    this.#tell(thing, { ...line, fields: { ...line.fields, at } });
  }

  #turn(): void {
    for (const thing of this.#things.values()) if (thing.held !== null) this.#tellHeld(thing);
    this.#things.clear();
  }
}

/** Whether a line that says this may be told now; counts it. */
function mayTell({ said }: Thing, says: string): boolean {
  const times = said.get(says) ?? 0;
  if (times === 0 && said.size >= MAX_NEWS) return false;
  said.set(says, times + 1);
  return times < MAX_REPEATS;
}
