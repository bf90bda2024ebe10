/**
 * The second line: flock on the stores' lock files.
 * @module
 */
import { closeSync } from "node:fs";
import type { Clock, Timers } from "../ports/clock.ts";
import type { HeldLock, LockFailure, LockFiles } from "../ports/lock_file.ts";
import { reasonOf } from "../sys/errno.ts";
import { processExists } from "../sys/proc.ts";
import { lockOpenFile, type WrongFile } from "./held_lock.ts";
import { lockOwners } from "./lock_owners.ts";
import { type LockPath, parseLockPath } from "./lock_path.ts";
import { openLockFile } from "./open_lock_file.ts";

/** The first wait between two tries: most locks that are in the way at all go within milliseconds. */
const FIRST_DELAY_MS = 1;

/** The longest wait between two tries: costs 0.05 % of a core a waiter and is late by 12 ms on average. */
const MAX_DELAY_MS = 25;

/** How often owners are looked for at most: the search takes milliseconds, refusals may be many. */
const OWNERS_INTERVAL_MS = 1_000;

/** What the lock files need of the world. */
export interface LockFilePorts {
  readonly clock: Clock;
  readonly timers: Timers;
}

/**
 * Locks stores' lock files with flock(2), each through an open file description of its own: only
 * closing the last descriptor of that one frees it. Nothing stays open while waiting, so waiters
 * take no descriptors, and a lock file that is replaced is seen at the next try.
 *
 * Lock files are never removed: whoever removed one could no longer tell who waits for it.
 */
export class FlockLockFiles implements LockFiles {
  readonly #path: LockPath;
  readonly #clock: Clock;
  readonly #timers: Timers;
  #ownersAtMs = -Infinity;

  /**
   * `template` is the lock files' path with `{store}` for the store code.
   *
   * @throws {RangeError} for an unfit template.
   */
  constructor(template: string, ports: LockFilePorts) {
    this.#path = parseLockPath(template);
    this.#clock = ports.clock;
    this.#timers = ports.timers;
  }

  path(store: string): string {
    return this.#path(store);
  }

  lock(
    store: string,
    untilMs: number,
    done: (result: HeldLock | LockFailure) => void,
  ): () => void {
    let cancelled = false;
    let cancelTimer = () => {};
    let delayMs = FIRST_DELAY_MS;
    const attempt = () => {
      if (cancelled) return;
      const result = this.#try(store);
      if (result.kind === "foreign") return done(foreign(store, this.#path(store)));
      if (result.kind !== "busy" && result.kind !== "moved") return done(result);
      const leftMs = untilMs - this.#clock.bootMs();
      // Also ends for NaN, which compares as neither.
      if (!(leftMs > 0)) return done(this.#giveUp(store, result, untilMs));
      cancelTimer = this.#timers.after(Math.min(delayMs, leftMs), attempt);
      delayMs = Math.min(delayMs * 2, MAX_DELAY_MS);
    };
    attempt();
    return () => {
      cancelled = true;
      cancelTimer();
    };
  }

  /** One try, without waiting. Whatever comes of it, only a returned lock leaves something open. */
  #try(store: string): HeldLock | LockFailure | WrongFile {
    let path: string;
    try {
      path = this.#path(store);
    } catch (error) {
      return { kind: "error", message: `Cannot lock: ${(error as Error).message}` };
    }
    const file = openLockFile(store, path);
    if (file.kind !== "open") return file;
    let result: HeldLock | LockFailure | WrongFile | null = null;
    try {
      result = lockOpenFile(path, file);
    } catch (error) {
      const message = `Cannot lock ${path} of store ${store}: ${reasonOf(error)}`;
      result = { kind: "error", message };
    } finally {
      if (result?.kind !== "locked") closeSync(file.fd);
    }
    return result;
  }

  #giveUp(
    store: string,
    result: Extract<LockFailure | WrongFile, { kind: "busy" | "moved" }>,
    untilMs: number,
  ): LockFailure {
    const path = this.#path(store);
    if (result.kind === "moved") {
      return {
        kind: "error",
        message: `Cannot lock ${path} of store ${store}: the file was replaced while it was ` +
          `being locked; see what removes it, lock files must stay`,
      };
    }
    // Somebody only looks whether it is free: nobody is told by whom it is not.
    if (untilMs === -Infinity) return result;
    // Not 0, of a line that names nobody.
    const pids = result.fence?.pid ? [result.fence.pid] : [];
    const busy = { ...result, isLeft: pids.some((pid) => !processExists(pid)) };
    const nowMs = this.#clock.bootMs();
    if (nowMs - this.#ownersAtMs < OWNERS_INTERVAL_MS) return busy;
    this.#ownersAtMs = nowMs;
    return { ...busy, owners: lockOwners(path, pids) };
  }
}

function foreign(store: string, path: string): LockFailure {
  return {
    kind: "error",
    message:
      `Cannot use lock file ${path} of store ${store}: it holds other data than a lock's line, ` +
      "which a guard would write over; see whose it is, then empty it, or correct --lock-path",
  };
}
