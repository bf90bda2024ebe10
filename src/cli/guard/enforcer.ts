/**
 * Ends a guarded command when its lease does, all of its processes.
 * @module
 */
import { constants } from "node:os";
import { bootTimeMs } from "../../sys/boot_time.ts";
import { signalGroup, signalProcess } from "../../sys/job.ts";
import { LockTrail } from "./lock_trail.ts";
import type { LockMark } from "./lock_trail.ts";
import { newsRead } from "./news.ts";
import { ending, endTimeMs, killTimeMs, renewed } from "./plan.ts";
import type { Hold } from "./plan.ts";
import { membersOf } from "./sweep.ts";
import type { Target } from "./sweep.ts";

const { SIGTERM, SIGKILL, SIGCONT } = constants.signals;

/** How often to look for processes that are still being born while the others are killed, ms. */
const SWEEP_EVERY_MS = 20;
/**
 * A timer can be late by what the machine was busy or asleep, so far deadlines are looked at now
 * and then: timers stand still in suspend, CLOCK_BOOTTIME does not.
 */
const LOOK_EVERY_MS = 1_000;

/**
 * The agent is asked for a reprieve so long before processes are killed, however shortly before that they
 * are asked to end: the answer takes up to half a second, and decides whether they are.
 */
const ASK_BEFORE_KILL_MS = 600;
/** A question that had no answer is put again after this, as long as there is time. */
const ASK_AGAIN_MS = 100;

/** How an enforcer differs from the plan. */
export interface EnforcerOptions {
  /**
   * How much later than planned to ask the command to end, so that of two enforcers the other goes
   * first. Killing is never late.
   */
  readonly lateMs?: number;
  /**
   * Last resort before the command is asked to end for want of news: a newer hold, or null where there
   * is none. It throws where that is not known.
   */
  readonly reprieve?: () => Promise<Hold | null>;
  /** Called once, right before the command is asked to end, with the hold as it stays from then on. */
  readonly onAct?: (hold: Hold) => void;
}

/** Watches the clock for one command. */
export class Enforcer {
  readonly #options: EnforcerOptions;
  #hold: Hold | null = null;
  #target: Target;
  #acted = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** What was told meanwhile is being read; null while it is not. */
  #reading: Promise<void> | null = null;
  #asking = false;
  /** The deadline that the agent was asked about last, and whether it said that there is no later one. */
  #asked = { deadlineMs: -Infinity, denied: false };
  #askAgainAtMs = -Infinity;

  constructor(target: Target, options: EnforcerOptions = {}) {
    this.#target = target;
    this.#options = options;
  }

  /** Whether the command was asked to end, or killed, by us or by the other enforcer. */
  get acted(): boolean {
    return this.#acted;
  }

  /** More is known of where the command's processes are. */
  setPlace(
    place: Pick<Target, "group" | "cgroup" | "starter"> & { readonly lock: LockMark | null },
  ): void {
    const { lock: mark, ...rest } = place;
    const known = this.#target.lock;
    // The same as before, however often we are told.
    const isKnown = known !== null && mark !== null && known.mark.since === mark.since;
    const lock = isKnown || mark === null ? known : new LockTrail(mark);
    this.#target = { ...this.#target, ...rest, lock };
  }

  /**
   * The lease's newest state. One in which the command is asked to end already comes from the other
   * enforcer: this one then asks no more, but kills. After that there is no other.
   */
  update(hold: Hold): void {
    const known = this.#hold;
    // Null after a pause: then the caller's is the one that stays.
    if (known === null || (!this.#acted && hold.endingSinceMs !== null)) this.#hold = hold;
    else if (!this.#acted) this.#hold = renewed(known, hold.deadlineMs);
    if (hold.endingSinceMs !== null) this.#decide();
    this.look();
  }

  /** The lease is gone: asks the command to end now. */
  end(): void {
    this.#ask();
    this.look();
  }

  /**
   * Compares the clock now, and does what it is time for. But for want of news nothing is done before
   * all that was told us is read: we may have been stopped, and the machine suspended.
   */
  look(): void {
    const hold = this.#hold;
    if (hold === null || (this.#reading !== null && !this.#acted)) return;
    clearTimeout(this.#timer);
    const nowMs = bootTimeMs();
    const killAtMs = killTimeMs(hold);
    if (this.#acted) return nowMs >= killAtMs ? this.#kill() : this.#lookAt(killAtMs, nowMs);
    this.#askWhereItIsTime(hold, nowMs);
    if (this.#isTime(hold, nowMs)) return this.#actOnceRead();
    const times = [this.#askAtMs(hold), this.#actAtMs(hold), killAtMs];
    this.#lookAt(Math.min(...times.filter((timeMs) => timeMs > nowMs)), nowMs);
  }

  #lookAt(timeMs: number, nowMs: number): void {
    const delayMs = Math.min(Math.max(1, timeMs - nowMs), LOOK_EVERY_MS);
    this.#timer = setTimeout(() => this.look(), delayMs);
  }

  #actOnceRead(): void {
    const reading = this.#reading = newsRead();
    reading.then(() => {
      if (this.#reading !== reading) return; // stopped meanwhile
      this.#reading = null;
      const nowMs = bootTimeMs();
      if (this.#hold === null || this.#acted || !this.#isTime(this.#hold, nowMs)) {
        return this.look();
      }
      if (nowMs >= killTimeMs(this.#hold)) return this.#kill();
      this.end();
    });
  }

  /** Whether the command is to be asked to end, or killed; an answer that is still due decides first. */
  #isTime(hold: Hold, nowMs: number): boolean {
    return nowMs >= killTimeMs(hold) || (nowMs >= this.#actAtMs(hold) && !this.#asking);
  }

  #actAtMs(hold: Hold): number {
    const { lateMs = 0 } = this.#options;
    return Math.min(endTimeMs(hold) + lateMs, killTimeMs(hold));
  }

  /** The living processes of the command; a sweep of /proc. */
  members(): number[] {
    return membersOf(this.#target).map((each) => each.pid);
  }

  /** Stops watching. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#hold = null;
    this.#reading = null;
  }

  /** When the agent is asked; Infinity for not, or not again. */
  #askAtMs(hold: Hold): number {
    const { deadlineMs, denied } = this.#asked;
    const again = deadlineMs === hold.deadlineMs;
    if (this.#options.reprieve === undefined || this.#asking || (again && denied)) return Infinity;
    const actAtMs = this.#actAtMs(hold);
    const firstMs = Math.min(actAtMs, killTimeMs(hold) - ASK_BEFORE_KILL_MS);
    const askAtMs = Math.max(firstMs, this.#askAgainAtMs);
    // Once it is time to act, one question has to do.
    return again && askAtMs >= actAtMs ? Infinity : askAtMs;
  }

  #askWhereItIsTime(hold: Hold, nowMs: number): void {
    if (nowMs < this.#askAtMs(hold) || nowMs >= killTimeMs(hold)) return;
    this.#asking = true;
    const { deadlineMs } = hold;
    this.#asked = { deadlineMs, denied: false };
    const settle = (newer: Hold | null) => {
      this.#asking = false;
      this.#askAgainAtMs = bootTimeMs() + ASK_AGAIN_MS;
      if (this.#hold === null) return;
      if (newer === null) this.look();
      else this.update(newer);
    };
    this.#options.reprieve!().then((newer) => {
      this.#asked = { deadlineMs, denied: newer === null };
      settle(newer);
    }, () => settle(null));
  }

  /** Once only: a second SIGTERM means "at once, without cleaning up" to many programs. */
  #ask(): void {
    if (this.#acted || this.#hold === null) return;
    this.#decide();
    const { group } = this.#target;
    // Found first: who has the lock is known by those who may end at once.
    const members = membersOf(this.#target);
    if (group !== null) signalGroup(group, SIGTERM);
    for (const each of members) {
      // What a nested guard runs is told by that guard, which is asked itself.
      if (each.group !== group && each.innermost) signalProcess(each.pid, SIGTERM);
      signalProcess(each.pid, SIGCONT); // a stopped process would not see the other
    }
  }

  #kill(): void {
    const { group, lock, cgroup, starter } = this.#target;
    // Not asked before: who has the lock is known by those who end now. A cgroup has all of them.
    if (!this.#acted && lock !== null && cgroup === null) membersOf(this.#target);
    this.#decide();
    // The groups at once, before the slower look at every process.
    if (group !== null) signalGroup(group, SIGKILL);
    // With it would go whoever starts the command from inside: then one by one.
    if (!starter) cgroup?.kill();
    const members = membersOf(this.#target);
    for (const each of members) signalProcess(each.pid, SIGKILL);
    // One that forked while we looked was missed, and what it started has a new number.
    if (members.length > 0) this.#timer = setTimeout(() => this.look(), SWEEP_EVERY_MS);
  }

  /** From here on it is settled when the command is killed. */
  #decide(): void {
    if (this.#acted || this.#hold === null) return;
    this.#acted = true;
    this.#hold = ending(this.#hold, bootTimeMs());
    this.#options.onAct?.(this.#hold);
  }
}
