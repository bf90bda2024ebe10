/**
 * Runs a command under a lease: `agent guard`.
 * @module
 */
import { closeSync } from "node:fs";
import { constants } from "node:os";
import { bootTimeMs } from "../../sys/boot_time.ts";
import { Cgroup } from "../../sys/cgroup.ts";
import { reapOrphans } from "../../sys/job.ts";
import { setChildSubreaper } from "../../sys/process.ts";
import { formatDuration } from "../duration.ts";
import { EXIT, Failure } from "../failure.ts";
import { say } from "../output.ts";
import { commandOf } from "./command.ts";
import type { GuardedCommand } from "./command.ts";
import { Enforcer } from "./enforcer.ts";
import { GrantLink } from "./grant_link.ts";
import { untilNobodyRuns } from "./last_member.ts";
import { Job } from "./job.ts";
import type { Ending } from "./job.ts";
import type { LockedGrant } from "./locked_grant.ts";
import { lockMark } from "./lock_trail.ts";
import type { LockMark } from "./lock_trail.ts";
import { killTimeMs, mayRun, renewed } from "./plan.ts";
import type { Hold } from "./plan.ts";
import type { Signals } from "./signals.ts";
import { startGuarded } from "./start.ts";
import type { Started } from "./start.ts";
import type { WatchdogLink } from "./watchdog_link.ts";

const { SIGTERM, SIGKILL } = constants.signals;

/** What a granted command is run with. */
export interface WrapperOptions {
  readonly command: GuardedCommand;
  readonly grant: LockedGrant;
  /** Whether the lock is not the command's alone. */
  readonly shared: boolean;
  readonly socket: string;
  readonly mark: string;
  /** How long before the deadline the command is asked to end, and how long it may take. */
  readonly killAfterMs: number;
  readonly signals: Signals;
  readonly watchdog: WatchdogLink;
}

/** One command under one grant. */
export class Wrapper {
  readonly #options: WrapperOptions;
  readonly #link: GrantLink;
  readonly #enforcer: Enforcer;
  #hold: Hold;
  #job: Job | null = null;
  #started = false;
  #suspended = false;
  #suspensions = 0;
  /** The command's own; null where none could be made. */
  #cgroup: Cgroup | null = null;
  /** Whether the watchdog may have had reason to act of which we have not heard yet. */
  #wasLate = false;

  /** Follows the grant from now on. */
  constructor(options: WrapperOptions) {
    const { grant, mark, watchdog } = options;
    this.#options = options;
    const parent = { pid: process.pid, except: watchdog.pids };
    this.#enforcer = new Enforcer({ mark, group: null, cgroup: null, lock: null, parent }, {
      onAct: (hold) => this.#onAct(hold),
    });
    watchdog.onEnding((hold) => this.#enforcer.update(hold));
    this.#hold = {
      deadlineMs: grant.result.deadline_boot_ms,
      killAfterMs: options.killAfterMs,
      endingSinceMs: null,
    };
    this.#link = new GrantLink(grant, {
      onDeadline: (deadlineMs) => this.#renewed(deadlineMs),
      // Before there is a command, the enforcer has nothing to end.
      onLost: () => this.#enforcer.end(),
      onAgentGone: () => this.#onAgentGone(),
    });
  }

  /**
   * Runs the command to its end and returns the exit status.
   *
   * @throws {Failure} where it was not started; then nothing is left behind.
   */
  async run(): Promise<number> {
    const { watchdog } = this.#options;
    const { group, cgroup, lock } = await this.#start();
    watchdog.tell({ group, lock, cgroup: cgroup?.path ?? null });
    const job = this.#job = new Job(group, {
      onSuspend: () => this.#onSuspend(),
      onResume: () => void this.#onResume(),
      onChildren: () => reapOrphans(new Set([group, ...watchdog.pids])),
    });
    this.#enforcer.setPlace({ group, cgroup, lock });
    this.#enforcer.update(this.#hold);
    if (this.#link.lost !== null) this.#enforcer.end();
    return await this.#finish(await job.ended);
  }

  async #start(): Promise<Started & { readonly lock: LockMark | null }> {
    const { grant: { lockFd, agentPid }, shared, watchdog } = this.#options;
    try {
      const started = await this.#startUnderLease();
      const isOurs = lockFd !== null && !shared;
      return { ...started, lock: isOurs ? lockMark(lockFd, started.group, agentPid) : null };
    } catch (error) {
      // What fails after the start must not be taken for a command that never ran.
      if (!this.#started) {
        this.#enforcer.stop();
        watchdog.dismiss();
        this.#cgroup?.remove();
      }
      throw error;
    } finally {
      // The command has it now. A copy here would keep the store locked between the release and our
      // own end, when it is somebody else's turn already.
      if (lockFd !== null) closeSync(lockFd);
      if (!this.#started) await this.#link.release();
    }
  }

  /** Starts it only while its lease lives by the clock: we may have been stopped since the grant. */
  async #startUnderLease(): Promise<Started> {
    const { command, grant, socket, mark, watchdog, signals } = this.#options;
    const { token, store } = grant.result;
    while (await this.#mayStart()) {
      this.#cgroup ??= Cgroup.make(mark);
      const cgroup = this.#cgroup;
      const hold = this.#hold;
      // Before the command starts: whenever we are killed, the watchdog knows enough to end it. And not
      // before the lease was seen to live: it would act by one that is long past.
      watchdog.tell({ hold, grant: { socket, token, store }, cgroup: cgroup?.path ?? null });
      // Orphans of the command become our children: so none gets out of sight.
      setChildSubreaper();
      // Before there is one: the first thing it does may be to have us signalled.
      signals.forwardTo((signal) => this.#job?.forward(signal));
      const started = startGuarded({ command, grant, socket, mark, cgroup, hold });
      if (started !== null) {
        this.#started = true;
        this.#cgroup = started.cgroup;
        return started;
      }
      // Stopped right here. What the watchdog has decided meanwhile stands.
      await watchdog.hear();
    }
    throw new Failure(`${this.#whyNotStarted()}: nothing was run; run it again`, EXIT.lost);
  }

  /** Whether the lease lives; the agent is asked only if the clock says no. */
  async #mayStart(): Promise<boolean> {
    const lives = () =>
      this.#link.lost === null && !this.#enforcer.acted && mayRun(this.#hold, bootTimeMs());
    if (!lives()) await this.#link.prove();
    return lives();
  }

  #whyNotStarted(): string {
    const { command, grant: { result } } = this.#options;
    const { lost, reason } = this.#link;
    const what = lost === null ? "ran out" : "went";
    // Its advice is for who has written.
    const why = lost?.replace(/;.*$/, "") ?? reason;
    return `the lease on ${result.store} ${what} before ${commandOf(command)} was started (${why})`;
  }

  #onAgentGone(): void {
    if (!this.#started) return;
    const leftMs = Math.max(0, this.#hold.deadlineMs - this.#hold.killAfterMs - bootTimeMs());
    say(
      `the agent is gone; ${commandOf(this.#options.command)} may run on for ` +
        `${formatDuration(Math.ceil(leftMs / 100) * 100)}, then its lease runs out`,
    );
  }

  #renewed(deadlineMs: number): void {
    const hold = renewed(this.#hold, deadlineMs);
    if (this.#started) {
      // Told before it counts, and the clock is read after that: whenever we are stopped in between, the
      // watchdog may have decided by the older one, and we know that we were late by it.
      this.#options.watchdog.tell({ hold });
      this.#noteLateness();
    }
    this.#hold = hold;
    if (this.#started && !this.#suspended) this.#enforcer.update(hold);
  }

  /** The command's end is decided, by us or by the watchdog: no renewal changes it any more. */
  #onAct(hold: Hold): void {
    const { command, grant, watchdog } = this.#options;
    this.#hold = hold;
    watchdog.tell({ hold });
    // The watchdog's decision on a command that was not even started is told by what follows from it.
    if (!this.#started) return;
    const { store } = grant.result;
    const { lost, reason } = this.#link;
    const state = bootTimeMs() >= hold.deadlineMs ? "has run out" : "is about to run out";
    const what = lost === null ? `${state} (${reason})` : `is gone (${lost})`;
    say(`the lease on ${store} ${what}: stopping ${commandOf(command)}`);
  }

  #noteLateness(): void {
    if (!mayRun(this.#hold, bootTimeMs())) this.#wasLate = true;
  }

  /** While we are stopped the watchdog keeps watch; our own view of the deadline grows stale. */
  #onSuspend(): void {
    this.#suspensions++;
    this.#suspended = true;
    this.#wasLate = true;
    this.#enforcer.stop();
  }

  /**
   * What the agent told while we were stopped is read first, and most of it is long past: so nothing
   * is done by it before the agent has said what is true now.
   */
  async #onResume(): Promise<void> {
    if (!this.#suspended) return;
    const suspensions = this.#suspensions;
    await this.#link.prove();
    if (this.#suspensions !== suspensions) return; // stopped again meanwhile
    this.#suspended = false;
    this.#enforcer.update(this.#hold);
    if (this.#link.lost !== null) this.#enforcer.end();
  }

  async #finish(ending: Ending): Promise<number> {
    const { watchdog } = this.#options;
    const endedMs = bootTimeMs();
    this.#noteLateness();
    // Late by what we know; we may have been stopped, and know little.
    if (!this.#enforcer.acted && !mayRun(this.#hold, endedMs)) await this.#link.prove();
    // Was it the watchdog that ended it?
    if (this.#wasLate || ending.signal === SIGTERM || ending.signal === SIGKILL) {
      await watchdog.hear();
    }
    const { acted } = this.#enforcer;
    const ranOut = !acted && endedMs >= this.#hold.deadlineMs;
    let gone = acted || ranOut;
    if (gone) {
      this.#enforcer.update(this.#hold);
      // The grant ends with us, so we end last: whoever gets it knows that nothing guarded still runs.
      await untilNobodyRuns(this.#enforcer, killTimeMs(this.#hold));
    }
    this.#enforcer.stop();
    watchdog.dismiss();
    // What the command left running goes on without us.
    this.#cgroup?.remove();
    // A lost grant needs no release: it ends with our connection, also where the agent hangs.
    if (!gone && await this.#link.release() === "lost") gone = true;
    if (!gone) return ending.status;
    say(
      `${this.#whatHappened(ranOut)}; what it wrote may be incomplete: ` +
        "check the store, then run it again",
    );
    return EXIT.lost;
  }

  #whatHappened(ranOut: boolean): string {
    const command = commandOf(this.#options.command);
    const lease = `the lease on ${this.#options.grant.result.store}`;
    const { lost, reason } = this.#link;
    if (lost !== null) return `${lease} went while ${command} ran (${lost})`;
    if (ranOut) return `${lease} ran out while ${command} ran (${reason})`;
    return `${command} was ended, because ${lease} was about to run out (${reason})`;
  }
}
