/**
 * No coordinator: every store is this host's. The entries and records live in this process, and
 * epochs go on from those in the lock files, so that they count up over restarts.
 * @module
 */
import type { TenureRecord } from "../lease/tenure.ts";
import type { Coordinator, EntryRead, Outcome, TenureRead } from "../ports/coordinator.ts";

/** What the bucket of a real coordinator keeps at most: there, one that was closed counts twice. */
const HISTORY = 8;

/** What stands in for the coordinator. */
export interface StandaloneOptions {
  readonly node: string;
  readonly incarnation: string;
  readonly address: string | null;
  /** The epoch that the store's lock file carries; 0 for none. */
  readonly epochOnDisk: (store: string) => number;
}

interface Kept {
  revision: number;
  held: boolean;
  tenureRevision: number;
  readonly tenures: TenureRecord[];
}

/** A coordinator of one, always reachable. */
export class StandaloneCoordinator implements Coordinator {
  readonly connected = true;
  readonly #options: StandaloneOptions;
  readonly #stores = new Map<string, Kept>();

  constructor(options: StandaloneOptions) {
    this.#options = options;
  }

  putEntry(store: string, expect: number, done: (outcome: Outcome<number>) => void): void {
    this.#write(store, expect, true, done);
  }

  deleteEntry(store: string, expect: number, done: (outcome: Outcome<number>) => void): void {
    this.#write(store, expect, false, done);
  }

  readEntry(store: string, done: (outcome: Outcome<EntryRead>) => void): void {
    const { revision, held } = this.#kept(store);
    const { node, incarnation, address } = this.#options;
    const value: EntryRead = held
      ? { kind: "entry", revision, node, incarnation, address }
      : { kind: "none" };
    queueMicrotask(() => done({ kind: "ok", value }));
  }

  readTenure(store: string, done: (outcome: Outcome<TenureRead>) => void): void {
    const { tenureRevision: revision, tenures } = this.#kept(store);
    const record = tenures[0] ?? null;
    queueMicrotask(() => done({ kind: "ok", value: { revision, record } }));
  }

  putTenure(
    store: string,
    expect: number,
    record: TenureRecord,
    done: (outcome: Outcome<number>) => void,
  ): void {
    const kept = this.#kept(store);
    const { tenureRevision: lastRevision, tenures } = kept;
    if (expect !== lastRevision) {
      return queueMicrotask(() => done({ kind: "conflict", lastRevision }));
    }
    // A tenure is written when it begins and again when it ends: the later one says all.
    if (tenures[0]?.epoch === record.epoch && tenures[0].incarnation === record.incarnation) {
      tenures.shift();
    }
    tenures.unshift(record);
    tenures.splice(HISTORY);
    const value = ++kept.tenureRevision;
    queueMicrotask(() => done({ kind: "ok", value }));
  }

  readHistory(store: string, done: (outcome: Outcome<TenureRecord[]>) => void): void {
    const value = [...this.#kept(store).tenures];
    queueMicrotask(() => done({ kind: "ok", value }));
  }

  #write(
    store: string,
    expect: number,
    held: boolean,
    done: (outcome: Outcome<number>) => void,
  ): void {
    const kept = this.#kept(store);
    // Nothing held reads as nothing, so a create expects 0; the revisions count on all the same.
    const lastRevision = kept.held ? kept.revision : 0;
    if (expect !== lastRevision) {
      return queueMicrotask(() => done({ kind: "conflict", lastRevision }));
    }
    kept.held = held;
    kept.revision++;
    const value = held ? kept.revision : 0;
    queueMicrotask(() => done({ kind: "ok", value }));
  }

  #kept(store: string): Kept {
    let kept = this.#stores.get(store);
    if (kept === undefined) {
      const revision = this.#options.epochOnDisk(store);
      kept = { revision, held: false, tenureRevision: 0, tenures: [] };
      this.#stores.set(store, kept);
    }
    return kept;
  }
}
