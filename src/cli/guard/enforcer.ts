/**
 * Ends a guarded command when its lease does, all of its processes.
 * @module
 */
import { constants } from "node:os";
import { bootTimeMs } from "../../sys/boot_time.ts";
import { signalGroup, signalProcess } from "../../sys/job.ts";
import { ending, renewed, stepAt } from "./plan.ts";
import type { Hold } from "./plan.ts";
import { LockTrail } from "./lock_holders.ts";
import type { LockMark } from "./lock_holders.ts";
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

/** A look later than this was held up: the process was stopped, or the machine suspended. */
const HELD_UP_MS = 300;

/** What was sent to us meanwhile is read within a turn of the event loop, or it was not sent. */
const READ_NEWS_MS = 10;

/** How an enforcer differs from the plan. */
export interface EnforcerOptions {
  /**
   * How much later than planned to ask the command to end, so that of two enforcers the other goes
   * first. Killing is never late.
   */
  readonly lateMs?: number;
  /** Last resort before the command is asked to end for want of news: a newer hold, or null. */
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
  #askingForReprieve = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When the look that is on its way was due; Infinity when none is. */
  #dueMs = Infinity;

  constructor(target: Target, options: EnforcerOptions = {}) {
    this.#target = target;
    this.#options = options;
  }

  /** Whether the command was asked to end, or killed, by us or by the other enforcer. */
  get acted(): boolean {
    return this.#acted;
  }

  /** More is known of where the command's processes are. */
  setPlace(place: Pick<Target, "group" | "cgroup"> & { readonly lock: LockMark | null }): void {
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

  /** Compares the clock now, and acts if it is time. */
  look(): void {
    clearTimeout(this.#timer);
    if (this.#hold === null) return;
    const nowMs = bootTimeMs();
    // Stopped until now: the newest deadline may wait to be read. Once, and only for that long: the
    // next look is not late.
    if (!this.#acted && nowMs > this.#dueMs + HELD_UP_MS) return this.#lookIn(READ_NEWS_MS, nowMs);
    const { lateMs = 0 } = this.#options;
    const step = stepAt(this.#hold, nowMs);
    if (step.kind === "kill") return this.#kill();
    const late = stepAt(this.#hold, nowMs - lateMs);
    if (late.kind !== "run") this.#end();
    const untilMs = late.kind === "run" ? late.untilMs + lateMs : step.untilMs;
    const waitMs = Math.min(untilMs, step.kind === "end" ? step.untilMs : Infinity) - nowMs;
    this.#lookIn(Math.min(Math.max(1, waitMs), LOOK_EVERY_MS), nowMs);
  }

  #lookIn(delayMs: number, nowMs: number): void {
    this.#dueMs = nowMs + delayMs;
    this.#timer = setTimeout(() => this.look(), delayMs);
  }

  /** The living processes of the command; a sweep of /proc. */
  members(): number[] {
    return membersOf(this.#target).map((each) => each.pid);
  }

  /** Stops watching. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#hold = null;
  }

  #end(): void {
    const { reprieve } = this.#options;
    if (this.#acted || this.#askingForReprieve) return;
    if (reprieve === undefined) return this.#ask();
    this.#askingForReprieve = true;
    reprieve().catch(() => null).then((hold) => {
      this.#askingForReprieve = false;
      if (this.#hold === null) return;
      if (hold !== null) return this.update(hold);
      // What was told while the question was on its way counts, too.
      const { lateMs = 0 } = this.#options;
      if (stepAt(this.#hold, bootTimeMs() - lateMs).kind === "run") return this.look();
      this.#ask();
    });
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
    const { group, lock, cgroup } = this.#target;
    // Not asked before: who has the lock is known by those who end now. A cgroup has all of them.
    if (!this.#acted && lock !== null && cgroup === null) membersOf(this.#target);
    this.#decide();
    // The groups at once, before the slower look at every process.
    if (group !== null) signalGroup(group, SIGKILL);
    cgroup?.kill();
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
