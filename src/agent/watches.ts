/**
 * Watches: who wants to know of which store's changes.
 * @module
 */
import type { Slot } from "./slot.ts";
import type { Client, LeaseInfo } from "./types.ts";

interface Watch {
  readonly id: string;
  readonly client: Client;
  /** Null: every store the agent knows. */
  readonly stores: ReadonlySet<string> | null;
}

/** The watches of all clients. */
export class Watches {
  readonly #info: (slot: Slot) => LeaseInfo;
  readonly #all = new Map<string, Watch>();
  /** What was last told of a store, so that only changes are. */
  readonly #told = new Map<string, string>();
  #lastId = 0;

  constructor(info: (slot: Slot) => LeaseInfo) {
    this.#info = info;
  }

  /** Begins a watch and returns its name. */
  add(client: Client, stores: readonly string[] | null): string {
    const id = `w${++this.#lastId}`;
    this.#all.set(id, { id, client, stores: stores && new Set(stores) });
    return id;
  }

  /** Ends a watch of this client. */
  remove(client: Client, id: string): boolean {
    if (this.#all.get(id)?.client.id !== client.id) return false;
    this.#all.delete(id);
    this.#tidy();
    return true;
  }

  /** Ends every watch of a client. */
  clientGone(client: Client): void {
    for (const watch of this.#all.values()) {
      if (watch.client.id === client.id) this.#all.delete(watch.id);
    }
    this.#tidy();
  }

  /** Whether somebody watches the store by name. */
  wants(slot: Slot): boolean {
    for (const { stores } of this.#all.values()) if (stores?.has(slot.store.code)) return true;
    return false;
  }

  /** Tells one watch the present state of a store. */
  tell(id: string, slot: Slot): void {
    const info = this.#info(slot);
    this.#told.set(info.store, keyOf(info));
    this.#all.get(id)?.client.changed(id, info);
  }

  /** Tells everybody concerned if the store is not as it was last told. */
  notice(slot: Slot): void {
    if (this.#all.size === 0) return;
    const info = this.#info(slot);
    const key = keyOf(info);
    if (this.#told.get(info.store) === key) return;
    this.#told.set(info.store, key);
    for (const { id, client, stores } of this.#all.values()) {
      if (stores === null || stores.has(info.store)) client.changed(id, info);
    }
  }

  #tidy(): void {
    if (this.#all.size === 0) this.#told.clear();
  }
}

function keyOf({ state, held, node, epoch }: LeaseInfo): string {
  return `${state} ${held} ${node} ${epoch}`;
}
