/**
 * A map for what only passes through: very many entries in all, few of them at a time.
 * @module
 */

/** How many entries are added before the storage is made anew; copying those that are there is nothing then. */
const RENEW_AFTER = 256;

/** The same while there are none to be copied: about as many as fill the smallest table. */
const RENEW_EMPTY_AFTER = 8;

/**
 * A `Map` for entries that come and go. JavaScript's own takes another table whenever deleted entries
 * fill the old one, and the old one refers to the new, for iterators that are still at it. So once a
 * table has lived through a collection of garbage, all later ones live with it, and with them all that
 * was ever in them, until a collection looks at everything: measured, half of what an agent that
 * holds 100,000 stores ever allocated. Here a fresh map now and then cuts that off.
 *
 * Whoever iterates over it sees what is deleted meanwhile, or not, and what is added, or not.
 */
export class PassingMap<K, V> {
  #map: Map<K, V>;
  #added = 0;

  constructor(entries: Iterable<readonly [K, V]> = []) {
    this.#map = new Map(entries);
  }

  get size(): number {
    return this.#map.size;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  has(key: K): boolean {
    return this.#map.has(key);
  }

  set(key: K, value: V): void {
    const { size } = this.#map;
    if (++this.#added > (size === 0 ? RENEW_EMPTY_AFTER : RENEW_AFTER) && this.#added > size) {
      this.#map = new Map(this.#map);
      this.#added = 1;
    }
    this.#map.set(key, value);
  }

  delete(key: K): boolean {
    return this.#map.delete(key);
  }

  clear(): void {
    this.#map = new Map();
    this.#added = 0;
  }

  keys(): IterableIterator<K> {
    return this.#map.keys();
  }

  values(): IterableIterator<V> {
    return this.#map.values();
  }

  [Symbol.iterator](): IterableIterator<[K, V]> {
    return this.#map[Symbol.iterator]();
  }
}
