/**
 * One KV bucket as a stream: a revision counter, the newest message of each key, ageing by the
 * server's clock, and enough of the past to serve stale reads.
 * @module
 */

/** Who wrote a message. */
export interface Author {
  readonly node: string;
  /** Null for a program without headers, or an operator. */
  readonly incarnation: string | null;
  /** Tells processes apart whatever they are called. */
  readonly process: number;
}

/** A stored message; a tombstone has no value. */
export interface Message<V> {
  readonly revision: number;
  readonly value: V | null;
  readonly author: Author;
  /** When it goes, on the server's clock; Infinity without a TTL. */
  readonly goneAtMs: number;
}

/** What a compare-and-set came to. */
export type Compared =
  | { readonly kind: "ok"; readonly value: number }
  | { readonly kind: "conflict"; readonly lastRevision: number };

interface Past<V> {
  readonly untilMs: number;
  readonly message: Message<V> | null;
}

/** How many former states of a key can be read stale. */
const PAST = 6;

/** A bucket. Times are of the server's clock. */
export class Bucket<V> {
  #last: number;
  #messages = new Map<string, Message<V>>();
  #past = new Map<string, Past<V>[]>();
  #history = new Map<string, Message<V>[]>();
  readonly #keep: number;

  constructor(firstRevision: number, keep: number) {
    this.#last = firstRevision - 1;
    this.#keep = keep;
  }

  get lastRevision(): number {
    return this.#last;
  }

  /** The newest message of a key that has not aged out. */
  newest(key: string, nowMs: number): Message<V> | null {
    const message = this.#messages.get(key);
    if (message === undefined) return null;
    if (nowMs < message.goneAtMs) return message;
    this.#remember(key, message, message.goneAtMs);
    this.#messages.delete(key);
    return null;
  }

  /** The newest message as it was at an earlier time. */
  stale(key: string, atMs: number, nowMs: number): Message<V> | null {
    const newest = this.newest(key, nowMs);
    for (const past of this.#past.get(key) ?? []) if (atMs < past.untilMs) return past.message;
    return newest;
  }

  /** Writes if the key's newest revision is `expect` (null: whatever it is). */
  put(
    key: string,
    expect: number | null,
    message: { value: V | null; author: Author; goneAtMs: number },
    nowMs: number,
  ): Compared {
    const newest = this.newest(key, nowMs);
    const lastRevision = newest?.revision ?? 0;
    if (expect !== null && expect !== lastRevision) return { kind: "conflict", lastRevision };
    this.#remember(key, newest, nowMs);
    const revision = ++this.#last;
    const stored = { ...message, revision };
    this.#messages.set(key, stored);
    if (this.#keep > 1) {
      const history = this.#history.get(key) ?? [];
      history.push(stored);
      if (history.length > this.#keep) history.shift();
      this.#history.set(key, history);
    }
    return { kind: "ok", value: revision };
  }

  /** The kept messages of a key, oldest first. */
  history(key: string): readonly Message<V>[] {
    return this.#history.get(key) ?? [];
  }

  /** What is there ages out later by so much, or sooner. */
  age(byMs: number, nowMs: number): void {
    for (const key of [...this.#messages.keys()]) {
      const message = this.newest(key, nowMs);
      if (message === null) continue;
      this.#messages.set(key, { ...message, goneAtMs: message.goneAtMs + byMs });
    }
  }

  /** Everything is gone, and counting starts again. */
  remake(firstRevision: number): void {
    this.#last = firstRevision - 1;
    this.#messages.clear();
    this.#past.clear();
    this.#history.clear();
  }

  #remember(key: string, message: Message<V> | null, untilMs: number): void {
    const past = this.#past.get(key);
    if (past === undefined) return void this.#past.set(key, [{ untilMs, message }]);
    past.push({ untilMs, message });
    if (past.length > PAST) past.shift();
  }
}
