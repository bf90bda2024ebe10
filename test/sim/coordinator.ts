/**
 * The coordinator port over the simulated network.
 * @module
 */
import { isStoreCode } from "../../src/lease/store_code.ts";
import type { TenureRecord } from "../../src/lease/tenure.ts";
import type { Timers } from "../../src/ports/clock.ts";
import type { Coordinator, EntryRead, Outcome, TenureRead } from "../../src/ports/coordinator.ts";
import type { Author } from "./bucket.ts";
import type { Link } from "./link.ts";
import type { Entry, Request } from "./server.ts";

/** How long a request is waited for, at most: the contract's 1.5 s. */
const TIMEOUT_MS = 1_500;

/** A write of an entry that was acknowledged to the agent. */
export interface Proof {
  /** When it was sent, by the perfect clock. */
  readonly sentMs: number;
  readonly revision: number;
}

type Done<T> = (outcome: Outcome<T>) => void;

/** What a node's coordinator is made of. */
export interface Wiring {
  readonly link: Link;
  readonly timers: Timers;
  readonly self: Entry & { readonly incarnation: string };
  readonly process: number;
  /** The TTL that its agent goes by. */
  ttlMs(): number;
  /** Whether that stands beside its records. */
  readonly tellsTtl: boolean;
  /** A write of an entry is on its way. */
  onPut(): void;
  /** Runs something on the node, unless it is paused or another run of it has begun. */
  deliver(run: () => void): void;
  /** The perfect clock. */
  perfectMs(): number;
}

/** One agent's side. */
export class SimCoordinator implements Coordinator {
  readonly #wiring: Wiring;
  readonly #author: Author;
  /** By store: the newest acknowledged write of its entry, for the checkers. */
  readonly proofs = new Map<string, Proof>();
  /** By store: the epochs whose tenure records were acknowledged, in whatever order, for the checkers. */
  readonly recorded = new Map<string, Set<number>>();
  /** By store: whether the newest answer to a write of the entry was a conflict. */
  readonly refused = new Map<string, boolean>();
  /** Told of each entry that was read. */
  onRead: (store: string, read: EntryRead) => void = () => {};
  /** By store: when a tenure that was not closed was last read or heard of, for the checkers. */
  readonly readOpenMs = new Map<string, number>();

  constructor(wiring: Wiring) {
    this.#wiring = wiring;
    const { self: { node, incarnation }, process } = wiring;
    this.#author = { node, incarnation, process };
  }

  get connected(): boolean {
    return this.#wiring.link.connected;
  }

  putEntry(store: string, expect: number, done: Done<number>): void {
    const { node, incarnation, address } = this.#wiring.self;
    const entry = { node, incarnation, address };
    const sentMs = this.#wiring.perfectMs();
    const author = this.#author;
    this.#call<number>({ type: "put", store, author, expect, entry }, (outcome) => {
      // An answer to an older write than one that was answered says nothing new.
      const isNewest = sentMs > (this.proofs.get(store)?.sentMs ?? -Infinity);
      if (outcome.kind === "ok") this.proofs.set(store, { sentMs, revision: outcome.value });
      if (outcome.kind !== "unknown" && isNewest) {
        this.refused.set(store, outcome.kind === "conflict");
      }
      done(outcome);
    });
    this.#wiring.onPut();
  }

  deleteEntry(store: string, expect: number, done: Done<number>): void {
    this.#call({ type: "delete", store, author: this.#author, expect }, done);
  }

  readEntry(store: string, done: Done<EntryRead>): void {
    this.#call<EntryRead>({ type: "read", store, author: this.#author }, (outcome) => {
      if (outcome.kind === "ok") this.onRead(store, outcome.value);
      done(outcome);
    });
  }

  readTenure(store: string, done: Done<TenureRead>): void {
    this.#call<TenureRead>({ type: "read_tenure", store, author: this.#author }, (outcome) => {
      if (outcome.kind === "ok") this.sawRecord(store, outcome.value.record);
      done(outcome);
    });
  }

  /** The agent was told of a record, asked or not. */
  sawRecord(store: string, record: TenureRecord | null): void {
    if (record?.released_at === undefined) this.readOpenMs.set(store, this.#wiring.perfectMs());
  }

  putTenure(store: string, expect: number, record: TenureRecord, done: Done<number>): void {
    const { ttlMs, tellsTtl } = this.#wiring;
    const { ttlMs: owedMs = 0, ...plain } = record;
    const told = tellsTtl ? { ...plain, ttlMs: Math.max(ttlMs(), owedMs) } : plain;
    const request: Request = {
      type: "put_tenure",
      store,
      author: this.#author,
      expect,
      record: told,
    };
    this.#call<number>(request, (outcome) => {
      if (outcome.kind === "ok") {
        this.recorded.set(store, (this.recorded.get(store) ?? new Set()).add(record.epoch));
      }
      done(outcome);
    });
  }

  readHistory(store: string, done: Done<TenureRecord[]>): void {
    this.#call({ type: "history", store, author: this.#author }, done);
  }

  #call<T>(request: Request, done: Done<T>): void {
    const { link, timers, deliver, ttlMs } = this.#wiring;
    if (!isStoreCode(request.store)) return this.#refuse(done, "not a store code");
    if (!link.connected) return this.#refuse(done, "not connected");
    let open = true;
    const settle = (outcome: Outcome<T>) => {
      if (!open) return;
      open = false;
      cancel();
      done(outcome);
    };
    const timeoutMs = Math.min(TIMEOUT_MS, ttlMs() / 3);
    const cancel = timers.after(
      timeoutMs,
      () => settle({ kind: "unknown", reason: `no answer within ${timeoutMs} ms` }),
    );
    link.send(request, (outcome) => deliver(() => settle(outcome as Outcome<T>)));
  }

  #refuse<T>(done: Done<T>, reason: string): void {
    this.#wiring.timers.after(0, () => done({ kind: "unknown", reason }));
  }
}
