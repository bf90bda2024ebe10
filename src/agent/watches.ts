/**
 * Watches: who wants to know of which store's changes.
 *
 * A watch keeps the stores it has yet to tell, not what it would have told: whoever reads slowly is
 * told the newest state of each, and its backlog never grows beyond what it knows already. What all
 * watches are told at a time is bounded, too, and stands back while renewals are late: watchers must
 * not cost the leases that they watch.
 * @module
 */
import type { Timers } from "../ports/clock.ts";
import type { Slot } from "./slot.ts";
import { pauseMs } from "./stand_back.ts";
import type { Client, LeaseInfo } from "./types.ts";

/** Watches that one client may have: one for each of its purposes, not one for each store. */
export const MAX_WATCHES = 64;

/** How many changes are told before the event loop gets its turn: some milliseconds of work. */
const SLICE = 512;

interface Watch {
  readonly id: string;
  readonly client: Client;
  /** Null: every store the agent knows, without a wish to hold it. */
  readonly named: Set<Slot> | null;
  /** Whether stores are still to join it. */
  grows: boolean;
  /** What was told last, by store, so that only changes are. */
  readonly told: Map<string, string>;
  /** Stores whose state is to be told. */
  readonly due: Map<string, Slot>;
  waiting: boolean;
}

/** The watches of all clients. */
export class Watches {
  readonly #info: (slot: Slot) => LeaseInfo;
  readonly #all = new Map<string, Watch>();
  readonly #forgotten = new WeakSet<Slot>();
  readonly #timers: Timers;
  readonly #lateMs: () => number;
  #lastId = 0;
  /** How many changes may be told before the next slice. */
  #left = SLICE;
  #timerSet = false;

  constructor(
    info: (slot: Slot) => LeaseInfo,
    timers: Timers,
    { lateMs }: { lateMs: () => number },
  ) {
    this.#info = info;
    this.#timers = timers;
    this.#lateMs = lateMs;
  }

  /** How many watches a client has. */
  of(client: Client): number {
    return [...this.#all.values()].filter((watch) => watch.client.id === client.id).length;
  }

  /**
   * Begins a watch of all stores, or of those that {@linkcode join} it, and returns its name;
   * {@linkcode tell} tells it the present state.
   */
  add(client: Client, what: "all" | "named"): string {
    const id = `w${++this.#lastId}`;
    this.#all.set(id, {
      id,
      client,
      named: what === "all" ? null : new Set(),
      grows: what === "named",
      told: new Map(),
      due: new Map(),
      waiting: false,
    });
    return id;
  }

  /** The store is watched, and wanted while that lasts; false: there is no such watch any more. */
  join(id: string, slot: Slot): boolean {
    const watch = this.#all.get(id);
    if (watch === undefined) return false;
    if (watch.named!.size < watch.named!.add(slot).size) slot.store.watchers++;
    return true;
  }

  /** All have joined it. */
  complete(id: string): void {
    const watch = this.#all.get(id);
    if (watch !== undefined) watch.grows = false;
  }

  /** Ends a watch of this client; false if it has no such one. */
  remove(client: Client, id: string): boolean {
    const watch = this.#all.get(id);
    if (watch === undefined || watch.client.id !== client.id) return false;
    for (const { store } of watch.named ?? []) store.watchers--;
    return this.#all.delete(id);
  }

  /** Ends every watch of a client. */
  clientGone(client: Client): void {
    for (const id of [...this.#all.keys()]) this.remove(client, id);
  }

  /** Tells one watch the present state of stores, at the pace at which its client reads. */
  tell(id: string, slots: Iterable<Slot>): void {
    const watch = this.#all.get(id);
    if (watch === undefined) return;
    for (const slot of slots) watch.due.set(slot.store.code, slot);
    this.#pump(watch);
  }

  /**
   * The store is not known any more. A watch of all stores keeps nothing of it, but that its client is
   * still to be told what became of what it was told.
   */
  forgotten(slot: Slot): void {
    const { code } = slot.store;
    this.#forgotten.add(slot);
    for (const { named, told, due } of this.#all.values()) {
      if (named !== null) continue;
      if (!told.has(code)) due.delete(code);
      if (!due.has(code)) told.delete(code);
    }
  }

  /** Whether there is something to tell a client that it has not read enough for. */
  isBehind(client: Client): boolean {
    if (client.congested) return true;
    for (const watch of this.#all.values()) {
      if (watch.client.id === client.id && (watch.grows || watch.due.size > 0)) return true;
    }
    return false;
  }

  /** Something changed for all of these stores. */
  noticeAll(slots: Iterable<Slot>): void {
    if (this.#all.size === 0) return;
    for (const slot of slots) this.notice(slot);
  }

  /** Something happened to a store: whoever watches it is told if it is not as it was. */
  notice(slot: Slot): void {
    // It may be ticked once more; the store known by its code is another then, or none.
    if (this.#forgotten.has(slot)) return;
    // Most events are renewals, which change nothing: that is found once for all watches.
    let key: string | null = null;
    for (const watch of this.#all.values()) {
      if (watch.named !== null && !watch.named.has(slot)) continue;
      const { code } = slot.store;
      key ??= keyOf(this.#info(slot));
      if (watch.told.get(code) === key && !watch.due.has(code)) continue;
      watch.due.set(code, slot);
      this.#pump(watch);
    }
  }

  #pump(watch: Watch): void {
    if (watch.waiting) return;
    for (const [code, slot] of watch.due) {
      if (watch.client.congested) return this.#pumpLater(watch);
      if (this.#left <= 0) return this.#sliceLater();
      watch.due.delete(code);
      const info = this.#info(slot);
      const key = keyOf(info);
      const isNews = watch.told.get(code) !== key;
      if (this.#forgotten.has(slot)) watch.told.delete(code);
      else watch.told.set(code, key);
      if (!isNews) continue;
      this.#left--;
      watch.client.changed(watch.id, info);
    }
  }

  #pumpLater(watch: Watch): void {
    watch.waiting = true;
    watch.client.onDrain(() => {
      watch.waiting = false;
      if (this.#all.has(watch.id)) this.#pump(watch);
    });
  }

  #sliceLater(): void {
    if (this.#timerSet) return;
    this.#timerSet = true;
    this.#timers.after(pauseMs(this.#lateMs()), () => {
      this.#timerSet = false;
      this.#left = SLICE;
      // Who has least to be told first: a small watch does not wait for a large one.
      for (const watch of [...this.#all.values()].sort((a, b) => a.due.size - b.due.size)) {
        this.#pump(watch);
      }
    });
  }
}

/** What makes a change: a state with the same key is not told again. */
function keyOf({ state, held, node, epoch }: LeaseInfo): string {
  return `${state} ${held} ${node} ${epoch}`;
}
