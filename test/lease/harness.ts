/**
 * One store, driven by hand: time, answers and locks are what the test says.
 * @module
 */
import type { EntryRead, Outcome } from "../../src/lease/answers.ts";
import type { Refusal } from "../../src/lease/errors.ts";
import { ALL_RULES } from "../../src/lease/rules.ts";
import type {
  Inheritance,
  LeaseContext,
  LeaseEvent,
  LeaseNote,
  LeaseRequest,
  Ours,
} from "../../src/lease/state.ts";
import { Store } from "../../src/lease/store.ts";
import type {
  GuardRequest,
  LockRefusal,
  OnDisk,
  StoreEffect,
  StoreEvent,
} from "../../src/lease/store_events.ts";
import type { TenureRecord } from "../../src/lease/tenure.ts";
import { timingOf } from "../../src/lease/timing.ts";

export const TTL_MS = 15_000;
export const ME = "i-mine";

export const ok = <T>(value: T): Outcome<T> => ({ kind: "ok", value });
export const CONFLICT = { kind: "conflict" } as const;
export const UNKNOWN = { kind: "unknown", reason: "no answer within 1500 ms" } as const;

type Granted = Extract<StoreEffect, { type: "granted" }>;

/** A store and everything that it has asked for and said. */
export class Harness {
  nowMs = 1_000;
  connected = true;
  /** Whether there is room for attempts that nobody waits for. */
  hasRoom = true;
  /** Incarnations that this host's state directory knows. */
  readonly inheritances = new Map<string, Inheritance>();
  ttlMs = TTL_MS;
  graceMs: number | undefined = undefined;
  readonly store: Store;
  /** Requests that were not answered yet, oldest first. */
  readonly requests: LeaseRequest[] = [];
  readonly notes: LeaseNote[] = [];
  readonly granted: Granted[] = [];
  readonly refused = new Map<number, Refusal>();
  readonly lost = new Map<number, Refusal>();
  readonly verified: number[] = [];
  readonly verifyFailed = new Map<number, Refusal>();
  readonly effects: StoreEffect[] = [];
  /** What a lock file says when it is locked; undefined: locks are not answered by themselves. */
  onDisk: number | null | undefined = null;
  #lastId = 0;

  constructor(options: { stranger?: boolean; graceUntilMs?: number } = {}) {
    this.store = new Store("repo", { nowMs: this.nowMs, ...options });
  }

  get context(): LeaseContext {
    return {
      timing: timingOf({ ttlMs: this.ttlMs, graceMs: this.graceMs }),
      node: "alpha",
      incarnation: ME,
      rules: ALL_RULES,
      connected: this.connected,
      hasRoom: () => this.hasRoom,
      inherits: (incarnation) => this.inheritances.get(incarnation) ?? null,
    };
  }

  /** Whether nobody has the store's lock when it is looked at. */
  lockFree = true;
  /** Why the lock file cannot be used; null: it can. */
  lockFailure: Exclude<LockRefusal, { kind: "busy" }> | null = null;
  /** Why no fence can be written; null: it can. */
  fenceError: string | null = null;

  /** Handles an event and what its locks and fences bring. */
  handle(event: StoreEvent): void {
    const pending: StoreEvent[] = [event];
    for (let next = pending.shift(); next !== undefined; next = pending.shift()) {
      for (const effect of this.store.handle(next, this.nowMs, this.context)) {
        this.effects.push(effect);
        this.#note(effect, pending);
      }
    }
  }

  #note(effect: StoreEffect, pending: StoreEvent[]): void {
    switch (effect.type) {
      case "put_entry":
      case "delete_entry":
      case "read_entry":
      case "read_tenure":
      case "put_tenure":
        return void this.requests.push(effect);
      case "note":
        return void this.notes.push(effect.note);
      case "probe_lock":
        return void pending.push({
          type: "lock_probed",
          free: this.lockFree,
          fully: effect.fully,
          failure: this.lockFailure ?? this.#writeFailure(effect.fully),
          onDisk: this.#line,
        });
      case "granted":
        return void this.granted.push(effect);
      case "refused":
        return void this.refused.set(effect.id, effect.refusal);
      case "grant_lost":
        return void this.lost.set(effect.id, effect.refusal);
      case "verified":
        return void this.verified.push(effect.id);
      case "verify_failed":
        return void this.verifyFailed.set(effect.id, effect.refusal);
      case "lock":
        if (this.lockFailure !== null) {
          const { lockId } = effect;
          return void pending.push({ type: "lock_failed", lockId, failure: this.lockFailure });
        }
        if (this.onDisk !== undefined) {
          pending.push({ type: "locked", lockId: effect.lockId, onDisk: this.#line });
        }
        return;
      case "check_lock":
        return void pending.push({ type: "lock_checked", lockId: effect.lockId, current: true });
      case "write_fence":
        return void pending.push({
          type: "fence_written",
          guardId: effect.guardId,
          error: this.fenceError,
        });
    }
  }

  get #line(): OnDisk | null {
    return this.onDisk == null ? null : { epoch: this.onDisk, copyOf: null };
  }

  #writeFailure(writes: boolean): Harness["lockFailure"] {
    return writes && this.fenceError !== null ? { kind: "error", message: this.fenceError } : null;
  }

  // ---- what callers do ---------------------------------------------------------------------

  guard(wish: Partial<Omit<GuardRequest, "id">> = {}): number {
    const id = ++this.#lastId;
    const plain = { shared: false, waitMs: 0, waitLease: false, follow: false, passLock: false };
    this.handle({ type: "guard", guard: { ...plain, pid: 100 + id, ...wish, id } });
    return id;
  }

  verify(grantId: number): number {
    const id = ++this.#lastId;
    this.handle({ type: "verify", id, grantId });
    return id;
  }

  end(id: number, gone = false): void {
    this.handle({ type: "end", id, gone });
  }

  /** Lets time pass, then ticks as a timer would. */
  pass(ms: number): void {
    this.nowMs += ms;
    this.handle({ type: "tick" });
  }

  get held(): boolean {
    return this.store.held(this.nowMs, this.context);
  }

  get ours(): Ours {
    const { lease } = this.store;
    if (lease.phase !== "ours") throw new Error(`Expected a hold, found ${lease.phase}`);
    return lease;
  }

  /** When the hold ends. */
  get deadlineMs(): number {
    return this.ours.provenAtMs + this.ttlMs * 0.98;
  }

  // ---- what the coordinator answers --------------------------------------------------------

  /** The oldest request that waits for an answer, which must be of this type. */
  take<T extends LeaseRequest["type"]>(type: T): Extract<LeaseRequest, { type: T }> {
    const request = this.requests.shift();
    if (request?.type !== type) throw new Error(`Expected ${type}, found ${request?.type}`);
    return request as Extract<LeaseRequest, { type: T }>;
  }

  /** Answers a request, now. */
  answer(request: LeaseRequest, outcome: Outcome<unknown>): void {
    const answers = {
      put_entry: "put_done",
      delete_entry: "delete_done",
      read_entry: "entry_read",
      read_tenure: "tenure_read",
      put_tenure: "tenure_put",
    } as const;
    const event = { type: answers[request.type], seq: request.seq, outcome } as LeaseEvent;
    this.handle({ type: "lease", event });
  }

  put(outcome: Outcome<number>): void {
    this.answer(this.take("put_entry"), outcome);
  }

  read(outcome: Outcome<EntryRead>): void {
    this.answer(this.take("read_entry"), outcome);
  }

  tenure(record: TenureRecord | null, revision = record === null ? 0 : 1): void {
    this.answer(this.take("read_tenure"), ok({ revision, record }));
  }

  recorded(revision = 2): void {
    this.answer(this.take("put_tenure"), ok(revision));
  }

  /** Acquires the store at this epoch, after this last tenure. */
  acquire(epoch: number, previous: TenureRecord | null = null): void {
    this.handle({ type: "tick" });
    this.put(ok(epoch));
    this.tenure(previous);
    this.recorded();
  }

  /** A guard that is granted; the store must be held. */
  grant(revision: number, wish: Partial<Omit<GuardRequest, "id">> = {}): number {
    const id = this.guard(wish);
    this.put(ok(revision));
    return id;
  }
}

/** A tenure record of another node. */
export function tenureOf(
  incarnation: string,
  epoch: number,
  released = false,
): TenureRecord {
  return {
    node: "beta",
    incarnation,
    address: null,
    epoch,
    acquired_at: "2024-01-02T03:04:05Z",
    ...(released ? { released_at: "2024-01-02T03:05:00Z", reason: "drain" } : {}),
  };
}

/** An entry as read. */
export function entryOf(
  node: string,
  incarnation: string | null,
  revision: number,
): EntryRead {
  return { kind: "entry", node, incarnation, address: null, revision };
}
