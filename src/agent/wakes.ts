/**
 * When which store wants a tick: a binary heap, so that a host with very many stores looks only at
 * those that are due.
 * @module
 */

/** A heap of times with what they are for, the earliest first. */
export class Wakes<T> {
  readonly #times: number[] = [];
  readonly #items: T[] = [];

  /** How many wakes are to come. */
  get size(): number {
    return this.#times.length;
  }

  /** The earliest time; Infinity when there is none. */
  get nextMs(): number {
    return this.#times.length === 0 ? Infinity : this.#times[0];
  }

  /** Adds a wake. */
  add(atMs: number, item: T): void {
    let at = this.#times.length;
    this.#times.push(atMs);
    this.#items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (this.#times[parent] <= atMs) break;
      this.#move(parent, at);
      at = parent;
    }
    this.#times[at] = atMs;
    this.#items[at] = item;
  }

  /** Takes the earliest wake if it is due at `nowMs`. */
  takeDue(nowMs: number): T | undefined {
    if (this.#times.length === 0 || this.#times[0] > nowMs) return undefined;
    const item = this.#items[0];
    const lastTime = this.#times.pop()!;
    const lastItem = this.#items.pop()!;
    if (this.#times.length > 0) this.#sink(lastTime, lastItem);
    return item;
  }

  #sink(atMs: number, item: T): void {
    const size = this.#times.length;
    let at = 0;
    while (true) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && this.#times[child + 1] < this.#times[child]) child++;
      if (this.#times[child] >= atMs) break;
      this.#move(child, at);
      at = child;
    }
    this.#times[at] = atMs;
    this.#items[at] = item;
  }

  #move(from: number, to: number): void {
    this.#times[to] = this.#times[from];
    this.#items[to] = this.#items[from];
  }
}
