/**
 * The simulated coordinator: one state machine that compares and sets, ages entries by its own
 * clock, and can freeze, fail over, jump in time, lose its buckets, and be meddled with.
 * @module
 */
import type { TenureRecord } from "../../src/lease/tenure.ts";
import type { EntryRead, Outcome, TenureRead } from "../../src/ports/coordinator.ts";
import { type Author, Bucket, type Message } from "./bucket.ts";
import type { Mutations } from "./mutations.ts";
import type { Random } from "./random.ts";
import type { Scheduler } from "./scheduler.ts";
import { FIRST_REVISION, short, type Trace } from "./trace.ts";

/** An entry's value and headers. */
export interface Entry {
  readonly node: string;
  readonly incarnation: string | null;
  readonly address: string | null;
}

/** What a program asks of the coordinator. */
export type Request =
  & { readonly store: string; readonly author: Author }
  & (
    | { readonly type: "put"; readonly expect: number; readonly entry: Entry }
    | { readonly type: "delete"; readonly expect: number }
    | { readonly type: "read" }
    | { readonly type: "read_tenure" }
    | { readonly type: "put_tenure"; readonly expect: number; readonly record: TenureRecord }
    | { readonly type: "history" }
  );

/** Told what the coordinator did, for the checkers. */
export interface ServerWatcher {
  /** A write of `author` replaced `before` (null: nothing, or a tombstone) in the lease bucket. */
  onEntry(store: string, before: Message<Entry> | null, author: Author, deleted: boolean): void;
  onTenure(store: string, before: TenureRecord | null, record: TenureRecord): void;
  /** A request of this process was carried out. */
  onServed(process: number): void;
}

/** Whose hand wrote: an operator's. */
const OPERATOR: Author = { node: "operator", incarnation: null, process: -1 };

/** How late entries were measured to age out, at most, in milliseconds. */
const MAX_LATE_MS = 336;

/** How many tenure records of a store are kept. */
const TENURES_KEPT = 8;

/** The coordinator. */
export class SimServer {
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #trace: Trace;
  readonly #options: {
    ttlMs: number;
    rate: number;
    muteConflicts: boolean;
    staleReads: boolean;
    mutations: Mutations;
  };
  readonly #entries: Bucket<Entry>;
  readonly #tenures: Bucket<TenureRecord>;
  #jumpedMs = 0;
  #ttlMs: number;
  #smallMs = -Infinity;
  /** Requests wait here while it is frozen. */
  #inbox: (() => void)[] | null = null;
  /** Whether there is no leader: nothing is carried out. */
  electing = false;
  /** Whether the lease bucket does not exist. */
  bucketGone = false;
  /** Reads may be of the past until then. */
  staleUntilMs = -1;
  watcher: ServerWatcher | null = null;
  /** Told of each tenure record that is written. */
  readonly subscribers: ((store: string, record: TenureRecord, revision: number) => void)[] = [];
  /** By store, when its entry was last taken away other than by its holder or by age. */
  readonly disturbedMs = new Map<string, number>();

  constructor(
    scheduler: Scheduler,
    random: Random,
    trace: Trace,
    options: {
      ttlMs: number;
      rate: number;
      muteConflicts: boolean;
      staleReads: boolean;
      mutations: Mutations;
    },
  ) {
    this.#scheduler = scheduler;
    this.#random = random;
    this.#trace = trace;
    this.#options = options;
    this.#ttlMs = options.ttlMs;
    this.#entries = new Bucket(FIRST_REVISION, 1);
    this.#tenures = new Bucket(1, TENURES_KEPT);
  }

  /** Its own clock. */
  get clockMs(): number {
    return this.#scheduler.nowMs * this.#options.rate + this.#jumpedMs;
  }

  /** Carries a request out, now or once it is thawed. */
  receive(request: Request, reply: (outcome: Outcome<unknown>) => void): void {
    if (this.#inbox !== null) return void this.#inbox.push(() => this.receive(request, reply));
    if (this.electing) {
      // Without a leader a request is either refused by nobody being there, or lost.
      if (this.#random.chance(0.5)) reply({ kind: "unknown", reason: "no leader" });
      return;
    }
    const outcome = this.#apply(request);
    this.watcher?.onServed(request.author.process);
    if (this.#trace.on && request.type !== "read" && request.type !== "read_tenure") {
      this.#trace.add("server", `${describe(request)} → ${describeOutcome(outcome)}`);
    }
    reply(outcome);
  }

  #apply(request: Request): Outcome<unknown> {
    const onEntries = request.type === "put" || request.type === "delete" ||
      request.type === "read";
    if (onEntries && this.bucketGone) return { kind: "unknown", reason: "no such stream" };
    switch (request.type) {
      case "put":
      case "delete":
        return this.#write(request);
      case "read":
        return { kind: "ok", value: this.#read(request.store) };
      case "read_tenure":
        return { kind: "ok", value: this.#readTenure(request.store) };
      case "put_tenure":
        return this.#writeTenure(request);
      case "history":
        return { kind: "ok", value: this.#readHistory(request.store) };
    }
  }

  #write(request: Extract<Request, { type: "put" | "delete" }>): Outcome<number> {
    const { store, author, type } = request;
    const { casCreate, casRenew, casRelease } = this.#options.mutations;
    const compares = type === "delete" ? casRelease : request.expect === 0 ? casCreate : casRenew;
    const before = this.entry(store);
    const outcome = this.#entries.put(
      store,
      compares ? request.expect : null,
      { value: type === "put" ? request.entry : null, author, goneAtMs: this.#goneAtMs() },
      this.clockMs,
    );
    if (outcome.kind === "ok") this.watcher?.onEntry(store, before, author, type === "delete");
    return this.#answer(outcome);
  }

  #writeTenure(request: Extract<Request, { type: "put_tenure" }>): Outcome<number> {
    const { store, author, expect, record } = request;
    const before = this.#tenures.newest(store, this.clockMs)?.value ?? null;
    const message = { value: record, author, goneAtMs: Infinity };
    const outcome = this.#tenures.put(store, expect, message, this.clockMs);
    if (outcome.kind === "ok") {
      this.watcher?.onTenure(store, before, record);
      for (const tell of this.subscribers) tell(store, record, outcome.value);
    }
    return this.#answer(outcome);
  }

  #answer(outcome: Outcome<number>): Outcome<number> {
    return outcome.kind === "conflict" && this.#options.muteConflicts
      ? { kind: "conflict" }
      : outcome;
  }

  #goneAtMs(): number {
    const lateMs = this.#random.chance(0.5) ? 0 : this.#random.between(0, MAX_LATE_MS);
    return this.clockMs + this.#ttlMs + lateMs;
  }

  #look<V>(bucket: Bucket<V>, store: string): Message<V> | null {
    const { nowMs } = this.#scheduler;
    if (nowMs >= this.staleUntilMs || !this.#random.chance(0.5)) {
      return bucket.newest(store, this.clockMs);
    }
    return bucket.stale(store, this.clockMs - this.#random.between(0, 5_000), this.clockMs);
  }

  #read(store: string): EntryRead {
    const message = this.#look(this.#entries, store);
    if (message === null) return { kind: "none" };
    const { revision, value } = message;
    return value === null ? { kind: "tombstone", revision } : { kind: "entry", revision, ...value };
  }

  #readTenure(store: string): TenureRead {
    const message = this.#look(this.#tenures, store);
    return { revision: message?.revision ?? 0, record: message?.value ?? null };
  }

  #readHistory(store: string): TenureRecord[] {
    const tenures = new Map<string, TenureRecord>();
    for (const { value } of this.#tenures.history(store)) {
      if (value === null) continue;
      const id = `${value.incarnation} ${value.epoch}`;
      tenures.delete(id);
      tenures.set(id, value);
    }
    return [...tenures.values()].reverse();
  }

  /** The entry that is there now; null for none or a tombstone. */
  entry(store: string): Message<Entry> | null {
    const message = this.#entries.newest(store, this.clockMs);
    return message === null || message.value === null ? null : message;
  }

  /** The newest revision of the lease bucket. */
  get lastRevision(): number {
    return this.#entries.lastRevision;
  }

  /** The newest tenure record. */
  tenure(store: string): TenureRecord | null {
    return this.#tenures.newest(store, this.clockMs)?.value ?? null;
  }

  /** The store's entry was taken away from whoever held it. */
  disturb(store: string): void {
    this.disturbedMs.set(store, this.#scheduler.nowMs);
  }

  // ---- faults ------------------------------------------------------------------------------

  freeze(): void {
    this.#inbox ??= [];
  }

  thaw(): void {
    const inbox = this.#inbox ?? [];
    this.#inbox = null;
    for (const handle of inbox) handle();
  }

  get frozen(): boolean {
    return this.#inbox !== null;
  }

  /** The TTL of the lease bucket. */
  get ttlMs(): number {
    return this.#ttlMs;
  }

  /** An operator changes it, for the entries that are there as well. */
  set ttlMs(ttlMs: number) {
    this.#smallMs = this.smallMs;
    this.#entries.age(ttlMs - this.#ttlMs, this.clockMs);
    this.#ttlMs = ttlMs;
    this.#smallMs = Math.max(this.#smallMs, this.smallMs);
  }

  /** When it was last smaller than at first. */
  get smallMs(): number {
    return this.#ttlMs < this.#options.ttlMs ? this.#scheduler.nowMs : this.#smallMs;
  }

  /** Its clock jumps ahead. */
  jump(ms: number): void {
    this.#jumpedMs += ms;
  }

  /** An operator deletes or overwrites an entry, comparing nothing. */
  meddle(store: string, entry: Entry | null): void {
    const message = { value: entry, author: OPERATOR, goneAtMs: this.#goneAtMs() };
    this.#entries.put(store, null, message, this.clockMs);
  }

  /** Another program's entry, as it lands; for fixtures. Its revision. */
  putForeign(store: string, node: string): number {
    this.meddle(store, { node, incarnation: null, address: null });
    return this.#entries.lastRevision;
  }

  /** The lease bucket is deleted and made again. */
  remakeEntries(firstRevision: number): void {
    this.#entries.remake(firstRevision);
  }

  /** Every record of every tenure is lost, too. */
  loseTenures(): void {
    // No revision twice, as for the entries.
    this.#tenures.remake(this.#tenures.lastRevision + 1);
  }

  /** A follower behind its leader may serve reads for a while. */
  serveStale(forMs: number): void {
    if (this.#options.staleReads) this.staleUntilMs = this.#scheduler.nowMs + forMs;
  }
}

function describe(request: Request): string {
  const { author, store, type } = request;
  const expect = "expect" in request
    ? ` expecting ${request.expect === 0 ? "nothing" : short(request.expect)}`
    : "";
  if (request.type !== "put_tenure") {
    return `${type} ${store} by ${author.node}/${author.incarnation}${expect}`;
  }
  const { epoch, released_at } = request.record;
  const tenure = `${released_at === undefined ? "open" : "closed"} ${short(epoch)}`;
  return `record ${tenure} of ${store} by ${author.node}/${author.incarnation}`;
}

function describeOutcome(outcome: Outcome<unknown>): string {
  switch (outcome.kind) {
    case "ok":
      return typeof outcome.value === "number" ? `ok ${short(outcome.value)}` : "ok";
    case "conflict":
      return "conflict";
    case "unknown":
      return `unknown (${outcome.reason})`;
  }
}
