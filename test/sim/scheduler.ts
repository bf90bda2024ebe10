/**
 * Virtual time: what happens next, and when.
 * @module
 */

/** Something that will happen, unless cancelled. */
export interface Task {
  readonly atMs: number;
  /** Breaks ties: what was planned first happens first. */
  readonly order: number;
  run: (() => void) | null;
}

/** A binary heap of tasks, and the perfect clock that they move. */
export class Scheduler {
  /** The perfect clock, in milliseconds. */
  nowMs = 0;
  /** How many tasks have run. */
  steps = 0;
  #order = 0;
  readonly #heap: Task[] = [];

  /** Plans `run` in `delayMs` of perfect time. */
  after(delayMs: number, run: () => void): Task {
    const task = { atMs: this.nowMs + Math.max(0, delayMs), order: ++this.#order, run };
    this.#push(task);
    return task;
  }

  cancel(task: Task): void {
    task.run = null;
  }

  /** Runs everything planned up to `untilMs`, for as long as `goOn` says so. */
  run(untilMs: number, goOn: () => boolean): void {
    const heap = this.#heap;
    while (heap.length > 0 && heap[0].atMs <= untilMs && goOn()) {
      const task = this.#pop();
      if (task.run === null) continue;
      this.nowMs = task.atMs;
      this.steps++;
      task.run();
    }
    if (this.nowMs < untilMs && goOn()) this.nowMs = untilMs;
  }

  /** Runs the next task; false when there is none. */
  next(): boolean {
    while (this.#heap.length > 0) {
      const task = this.#pop();
      if (task.run === null) continue;
      this.nowMs = task.atMs;
      this.steps++;
      task.run();
      return true;
    }
    return false;
  }

  #push(task: Task): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(task);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(task, heap[parent])) break;
      heap[at] = heap[parent];
      at = parent;
    }
    heap[at] = task;
  }

  #pop(): Task {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop()!;
    const size = heap.length;
    if (size === 0) return first;
    let at = 0;
    while (true) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && before(heap[child + 1], heap[child])) child++;
      if (!before(heap[child], last)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

function before(a: Task, b: Task): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
