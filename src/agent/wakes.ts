/**
 * When which store wants a tick, so that a host with very many stores looks only at those that are
 * due.
 *
 * Times are rounded up to a grid, and what is due at the same point of it is kept together: setting
 * a wake costs the same however many there are, and renewals of many stores go out in one packet
 * instead of one each.
 * @module
 */
import { PassingMap } from "../lease/passing_map.ts";

/** The grid, in milliseconds: fine enough that no deadline or renewal notices. */
const GRID_MS = 5;

/** What comes sooner than this is a quick try or a wait that is nearly over: a finer grid. */
const NEAR_MS = 100;
const NEAR_GRID_MS = 1;

/** What can be woken. It has one wake at most: a new one takes the place of the old. */
export interface Sleeper {
  /** When; Infinity while no wake is set. Only {@linkcode Wakes} writes it. */
  wakeMs: number;
}

/** Wakes, the earliest first. */
export class Wakes<T extends Sleeper> {
  /** Who was to be woken at a time; those whose wake was set anew since are passed over. */
  readonly #due = new PassingMap<number, T[]>();
  /** The times in `#due`, as a binary heap. */
  readonly #times: number[] = [];

  /** The earliest time at which somebody may have to be woken; Infinity when there is none. */
  get nextMs(): number {
    return this.#times.length === 0 ? Infinity : this.#times[0];
  }

  /** Wakes `sleeper` at `atMs` or a little later, and not when it was to be woken before. */
  set(sleeper: T, atMs: number, nowMs: number): void {
    const gridMs = atMs - nowMs < NEAR_MS ? NEAR_GRID_MS : GRID_MS;
    const wakeMs = Math.ceil(atMs / gridMs) * gridMs;
    if (sleeper.wakeMs === wakeMs) return;
    sleeper.wakeMs = wakeMs;
    const others = this.#due.get(wakeMs);
    if (others !== undefined) return void others.push(sleeper);
    this.#due.set(wakeMs, [sleeper]);
    this.#add(wakeMs);
  }

  /** Takes one that is due at `nowMs`. */
  takeDue(nowMs: number): T | undefined {
    while (this.nextMs <= nowMs) {
      const wakeMs = this.#times[0];
      const due = this.#due.get(wakeMs)!;
      for (let next = due.pop(); next !== undefined; next = due.pop()) {
        if (next.wakeMs !== wakeMs) continue;
        next.wakeMs = Infinity;
        return next;
      }
      this.#due.delete(wakeMs);
      this.#removeFirst();
    }
    return undefined;
  }

  #add(timeMs: number): void {
    const times = this.#times;
    let at = times.length;
    times.push(timeMs);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (times[parent] <= timeMs) break;
      times[at] = times[parent];
      at = parent;
    }
    times[at] = timeMs;
  }

  #removeFirst(): void {
    const times = this.#times;
    const last = times.pop()!;
    const size = times.length;
    if (size === 0) return;
    let at = 0;
    for (let child = 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && times[child + 1] < times[child]) child++;
      if (times[child] >= last) break;
      times[at] = times[child];
      at = child;
    }
    times[at] = last;
  }
}
