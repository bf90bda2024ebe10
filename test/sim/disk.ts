/**
 * Lock files with the semantics of flock: a lock belongs to an open description and is free when
 * the last descriptor of it is closed, in whatever process.
 * @module
 */
import type { Clock, Timers } from "../../src/ports/clock.ts";
import type { Fence, HeldLock, LockFailure, LockFiles } from "../../src/ports/lock_file.ts";

/** One open, locked description. */
export interface Description {
  readonly file: LockFile;
  /** How many descriptors of it are open, in all processes. */
  open: number;
  /** When the lock was taken, by the perfect clock. */
  readonly lockedMs: number;
}

/** One lock file: an inode. */
export interface LockFile {
  readonly inode: number;
  lockedBy: Description | null;
  fence: Fence | null;
  /** The highest epoch at which a grant was made on it, for the checkers. */
  highest: number;
}

/** A file system, of one host or shared by all. */
export class SimDisk {
  readonly #files = new Map<string, LockFile>();
  readonly #missing = new Set<string>();
  #lastInode = 0;
  readonly #nowMs: () => number;
  /** Whether nothing can be written. */
  full = false;
  /** When it last was. */
  fullMs = -Infinity;
  /** Stores whose lock file cannot be opened, as if something else stood in its place. */
  readonly broken = new Set<string>();
  /** By store: when that last began or ended. */
  readonly brokenMs = new Map<string, number>();
  /** By store: when its directory last was missing. */
  readonly missingMs = new Map<string, number>();
  /** By store: when a lock was last freed, by the perfect clock. */
  readonly freedMs = new Map<string, number>();
  /** Told when a lock is freed. */
  readonly freed: ((store: string) => void)[] = [];
  /** The highest epoch that any file of the store has carried. */
  readonly seen = new Map<string, number>();

  /** `nowMs` is the perfect clock. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** The file that the store's lock path names; null where the directory does not exist. */
  file(store: string): LockFile | null {
    if (this.#missing.has(store)) return null;
    let file = this.#files.get(store);
    if (file === undefined) {
      file = { inode: ++this.#lastInode, lockedBy: null, fence: null, highest: 0 };
      this.#files.set(store, file);
    }
    return file;
  }

  /** The store is removed with its directory. */
  remove(store: string): void {
    this.#files.delete(store);
    this.#missing.add(store);
    this.seen.delete(store);
  }

  /** The store's directory is made again. */
  make(store: string): void {
    this.#missing.delete(store);
    this.#tell(store);
  }

  /** One descriptor of a description is closed. */
  close(store: string, description: Description): void {
    if (--description.open > 0) return;
    if (description.file.lockedBy === description) description.file.lockedBy = null;
    this.freedMs.set(store, this.#nowMs());
    this.#tell(store);
  }

  #tell(store: string): void {
    for (const told of this.freed) told(store);
  }
}

/** What a process of a host needs to lock. */
export interface LockWiring {
  readonly disk: SimDisk;
  readonly clock: Clock;
  readonly timers: Timers;
  /** How long a waiting process takes to notice that a lock was freed, at most 25 ms. */
  noticeMs(): number;
  perfectMs(): number;
  /** Whether locks exclude; false only where the checkers are being tested. */
  readonly excludes: boolean;
  /** Whether a lock can be seen by trying once; false only where the checkers are being tested. */
  readonly probes: boolean;
  /** Whether a replaced file is noticed; false only where the checkers are being tested. */
  readonly noticesReplaced: boolean;
}

interface Waiter {
  readonly store: string;
  attempt(): void;
}

/** The lock port of one run of one agent. */
export class SimLockFiles implements LockFiles {
  readonly #wiring: LockWiring;
  readonly #held = new Map<number, { store: string; description: Description }>();
  readonly #waiters = new Set<Waiter>();
  #lastFd = 2;
  #closed = false;
  /** By pid: when the newest fence naming it was written, by the perfect clock. */
  readonly fencedMs = new Map<number, number>();

  constructor(wiring: LockWiring) {
    this.#wiring = wiring;
    wiring.disk.freed.push((store) => this.#onFreed(store));
  }

  path(store: string): string {
    return `/stores/${store}/lease.lock`;
  }

  lock(
    store: string,
    untilMs: number,
    done: (result: HeldLock | LockFailure) => void,
  ): () => void {
    const first = this.#try(store);
    if (untilMs === -Infinity && !this.#wiring.probes && first.kind === "busy") {
      done({ kind: "unknown_store", path: this.path(store) });
      return () => {};
    }
    if (first.kind !== "busy" || this.#wiring.clock.bootMs() >= untilMs) {
      done(first);
      return () => {};
    }
    const waiter: Waiter = {
      store,
      attempt: () => {
        if (!this.#waiters.has(waiter)) return;
        const result = this.#try(store);
        if (result.kind === "busy" && this.#wiring.clock.bootMs() < untilMs) return;
        end();
        done(result);
      },
    };
    const stop = this.#atTime(untilMs, () => waiter.attempt());
    const end = () => {
      stop();
      this.#waiters.delete(waiter);
    };
    this.#waiters.add(waiter);
    return end;
  }

  /** A timer may be early: then it is set again. */
  #atTime(untilMs: number, run: () => void): () => void {
    const { clock, timers } = this.#wiring;
    let cancel = () => {};
    const arm = () => {
      cancel = timers.after(untilMs - clock.bootMs(), () => {
        if (clock.bootMs() < untilMs) arm();
        else run();
      });
    };
    arm();
    return () => cancel();
  }

  #onFreed(store: string): void {
    if (this.#closed) return;
    for (const waiter of this.#waiters) {
      if (waiter.store !== store) continue;
      this.#wiring.timers.after(this.#wiring.noticeMs(), () => waiter.attempt());
    }
  }

  #try(store: string): HeldLock | LockFailure {
    const file = this.#wiring.disk.file(store);
    if (file === null) return { kind: "unknown_store", path: this.path(store) };
    if (this.#wiring.disk.broken.has(store)) {
      return { kind: "error", message: `Cannot open ${this.path(store)}: not a regular file` };
    }
    if (file.lockedBy !== null && this.#wiring.excludes) return { kind: "busy", fence: file.fence };
    const description: Description = { file, open: 1, lockedMs: this.#wiring.perfectMs() };
    file.lockedBy = description;
    const fd = ++this.#lastFd;
    this.#held.set(fd, { store, description });
    return this.#heldLock(store, fd, description);
  }

  #heldLock(
    store: string,
    fd: number,
    description: Description,
    handOvers = 0,
  ): HeldLock {
    const { disk, noticesReplaced, perfectMs } = this.#wiring;
    const { file } = description;
    const current = () =>
      !noticesReplaced || (disk.file(store) === file && !disk.broken.has(store));
    return {
      kind: "locked",
      passed: false,
      handOvers,
      handOver: () => current() ? this.#heldLock(store, fd, description, handOvers + 1) : null,
      fd,
      path: this.path(store),
      fence: file.fence,
      current,
      rewrite: () => disk.full ? "No space left on device" : null,
      writeFence: (fence) => {
        if (disk.full) return "No space left on device";
        file.fence = fence;
        if (disk.file(store) === file) {
          disk.seen.set(store, Math.max(disk.seen.get(store) ?? 0, fence.epoch));
        }
        this.fencedMs.set(fence.pid, perfectMs());
        return null;
      },
      close: () => this.#close(fd),
    };
  }

  #close(fd: number): void {
    const held = this.#held.get(fd);
    if (held === undefined) return;
    this.#held.delete(fd);
    this.#wiring.disk.close(held.store, held.description);
  }

  /** The description behind one of our descriptors, with one more descriptor of it opened. */
  pass(fd: number): Description {
    const { description } = this.#held.get(fd)!;
    description.open++;
    return description;
  }

  /** The description behind one of our descriptors. */
  description(fd: number): Description {
    return this.#held.get(fd)!.description;
  }

  /** The process is gone: its descriptors are closed. */
  die(): void {
    this.#closed = true;
    this.#waiters.clear();
    for (const fd of [...this.#held.keys()]) this.#close(fd);
  }
}
