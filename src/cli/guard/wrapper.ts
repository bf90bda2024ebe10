/**
 * Runs a command under a lease: `agent guard`.
 * @module
 */
import { closeSync } from "node:fs";
import { constants } from "node:os";
import { AgentError } from "../../client/mod.ts";
import type { Connection, Notification } from "../../client/mod.ts";
import { bootTimeMs } from "../../sys/boot_time.ts";
import { Cgroup } from "../../sys/cgroup.ts";
import { reapOrphans, startJob } from "../../sys/job.ts";
import { setChildSubreaper } from "../../sys/process.ts";
import { formatDuration } from "../duration.ts";
import { EXIT } from "../failure.ts";
import { say } from "../output.ts";
import { cannotRun, commandOf } from "./command.ts";
import type { GuardedCommand } from "./command.ts";
import { freeDescriptor } from "./descriptor.ts";
import { Enforcer } from "./enforcer.ts";
import { guardedEnvironment, restoreDescriptorLimit } from "./environment.ts";
import { untilNobodyRuns } from "./last_member.ts";
import { Job } from "./job.ts";
import type { Ending } from "./job.ts";
import type { LockedGrant } from "./locked_grant.ts";
import { lockMark } from "./lock_holders.ts";
import type { LockMark } from "./lock_holders.ts";
import { killAfterMs, killTimeMs, renewed, stepAt } from "./plan.ts";
import type { Hold } from "./plan.ts";
import type { Signals } from "./signals.ts";
import type { WatchdogLink } from "./watchdog_link.ts";

const { SIGTERM, SIGKILL } = constants.signals;

/** The agent answers a release from memory; one that hangs must not hold up the exit status. */
const RELEASE_WITHIN_MS = 2_000;
/** As above, while the command runs on. */
const VERIFY_WITHIN_MS = 500;
/** What a granted command is run with. */
export interface WrapperOptions {
  readonly command: GuardedCommand;
  readonly grant: LockedGrant;
  /** Whether the lock is not the command's alone. */
  readonly shared: boolean;
  readonly socket: string;
  readonly mark: string;
  /** As wished for by `--kill-after`; null for the default. */
  readonly killAfterMs: number | null;
  readonly signals: Signals;
  readonly watchdog: WatchdogLink;
}

/** One command under one grant. */
export class Wrapper {
  readonly #options: WrapperOptions;
  readonly #connection: Connection;
  readonly #enforcer: Enforcer;
  #hold: Hold;
  #suspended = false;
  #suspensions = 0;
  /** The command's own; null where none could be made. */
  #cgroup: Cgroup | null;
  /** Why the lease is not renewed, as far as that is known. */
  #reason = "the agent did not renew it in time";
  /** What the agent says of a lease that is gone; null while it does not say so. */
  #lost: string | null = null;
  /** Whether the watchdog may have had reason to act of which we have not heard yet. */
  #wasLate = false;

  constructor(options: WrapperOptions) {
    const { grant, mark } = options;
    this.#options = options;
    this.#cgroup = Cgroup.make(mark);
    this.#connection = grant.connection;
    const parent = { pid: process.pid, except: options.watchdog.pids };
    this.#enforcer = new Enforcer({ mark, group: null, cgroup: null, lock: null, parent }, {
      onAct: (hold) => this.#onAct(hold),
    });
    options.watchdog.onEnding((hold) => this.#enforcer.update(hold));
    this.#hold = {
      deadlineMs: grant.result.deadline_boot_ms,
      killAfterMs: killAfterMs(options.killAfterMs, grant.ttlMs ?? grant.result.remaining_ms),
      endingSinceMs: null,
    };
  }

  /** Runs the command to its end and returns the exit status. */
  async run(): Promise<number> {
    const { grant, signals, watchdog, socket } = this.#options;
    const { token, store } = grant.result;
    // Before the command starts: whenever we are killed, the watchdog knows enough to end it.
    const grantedTo = { socket, token, store };
    watchdog.tell({ hold: this.#hold, grant: grantedTo, cgroup: this.#cgroup?.path ?? null });
    // Orphans of the command become our children: so none gets out of sight.
    setChildSubreaper(true);
    let job: Job | null = null;
    // Before there is one: the first thing it does may be to have us signalled.
    signals.forwardTo((signal) => job?.forward(signal));
    const { group, lock } = await this.#start();
    const cgroup = this.#cgroup;
    watchdog.tell({ group, lock, cgroup: cgroup?.path ?? null });
    job = new Job(group, {
      onSuspend: () => this.#onSuspend(),
      onResume: () => void this.#onResume(),
      onChildren: () => reapOrphans(new Set([group, ...watchdog.pids])),
    });
    this.#enforcer.setPlace({ group, cgroup, lock });
    this.#connection.onNotification((notification) => this.#onNotification(notification));
    for (const notification of grant.early) this.#onNotification(notification);
    this.#connection.closed.then((why) => why !== null && this.#onAgentGone());
    this.#enforcer.update(this.#hold);
    return await this.#finish(await job.ended);
  }

  async #start(): Promise<{ group: number; lock: LockMark | null }> {
    const { grant, shared } = this.#options;
    const { lockFd } = grant;
    try {
      const group = await this.#startCommand();
      const isOurs = lockFd !== null && !shared;
      return { group, lock: isOurs ? lockMark(lockFd, group, grant.agentPid) : null };
    } finally {
      // The command has it now. A copy here would keep the store locked between the release and our
      // own end, when it is somebody else's turn already.
      if (lockFd !== null) closeSync(lockFd);
    }
  }

  /**
   * Starts it, or tells why not, with nothing left behind. What fails after this must not be taken for
   * a command that never ran.
   */
  async #startCommand(): Promise<number> {
    const { command, grant, socket, mark, watchdog } = this.#options;
    const { result, lockFd } = grant;
    const as = freeDescriptor();
    const variables = {
      ZIT_LEASE_STORE: result.store,
      ZIT_LEASE_EPOCH: String(result.epoch),
      ZIT_LEASE_TOKEN: result.token,
      ZIT_LEASE_NODE: result.node,
      ...(lockFd === null ? {} : { ZIT_LEASE_LOCK_FD: String(as) }),
      ...(result.unguarded === null ? {} : { ZIT_LEASE_UNGUARDED: result.unguarded }),
      ZIT_AGENT_SOCKET: socket,
    };
    restoreDescriptorLimit();
    try {
      const env = guardedEnvironment(variables, mark);
      const pass = lockFd === null ? null : { fd: lockFd, as };
      return this.#startInside(() => startJob({ ...command, env, pass }));
    } catch (error) {
      this.#cgroup?.remove();
      watchdog.dismiss();
      await this.#release();
      throw cannotRun(command, error);
    }
  }

  #startInside(start: () => number): number {
    if (this.#cgroup === null) return start();
    const { result, inside } = this.#cgroup.around(start);
    if (!inside) this.#cgroup = null;
    return result;
  }

  #onNotification(notification: Notification): void {
    const { token } = this.#options.grant.result;
    if (notification.method === "lease" || notification.params.token !== token) return;
    if (notification.method === "renewed") {
      this.#renewed(notification.params.deadline_boot_ms);
    } else if (notification.method === "lost") {
      this.#lost ??= notification.params.message.replace(/\.$/, "");
      this.#enforcer.end();
    }
  }

  #onAgentGone(): void {
    this.#reason = "the agent is gone";
    const leftMs = Math.max(0, this.#hold.deadlineMs - this.#hold.killAfterMs - bootTimeMs());
    say(
      `the agent is gone; ${commandOf(this.#options.command)} may run on for ` +
        `${formatDuration(Math.ceil(leftMs / 100) * 100)}, then its lease runs out`,
    );
  }

  #renewed(deadlineMs: number): void {
    const hold = renewed(this.#hold, deadlineMs);
    // Told before it counts, and the clock is read after that: whenever we are stopped in between, the
    // watchdog may have decided by the older one, and we know that we were late by it.
    this.#options.watchdog.tell({ hold });
    this.#noteLateness();
    this.#hold = hold;
    if (!this.#suspended) this.#enforcer.update(this.#hold);
  }

  /** The command's end is decided, by us or by the watchdog: no renewal changes it any more. */
  #onAct(hold: Hold): void {
    const { command, grant, watchdog } = this.#options;
    this.#hold = hold;
    watchdog.tell({ hold });
    const { store } = grant.result;
    const state = bootTimeMs() >= hold.deadlineMs ? "has run out" : "is about to run out";
    const what = this.#lost === null ? `${state} (${this.#reason})` : `is gone (${this.#lost})`;
    say(`the lease on ${store} ${what}: stopping ${commandOf(command)}`);
  }

  #noteLateness(): void {
    if (stepAt(this.#hold, bootTimeMs()).kind !== "run") this.#wasLate = true;
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
    const { token, store } = this.#options.grant.result;
    const suspensions = this.#suspensions;
    // Read before the question: what the answer proves is counted from no later than this.
    const askedMs = bootTimeMs();
    try {
      const proof = await this.#connection.call(
        "verify",
        { token, store },
        { signal: AbortSignal.timeout(VERIFY_WITHIN_MS) },
      );
      this.#renewed(askedMs + proof.remaining_ms);
    } catch {
      // Then what is known has to do.
    }
    if (this.#suspensions !== suspensions) return; // stopped again meanwhile
    this.#suspended = false;
    this.#enforcer.update(this.#hold);
    if (this.#lost !== null) this.#enforcer.end();
  }

  async #finish(ending: Ending): Promise<number> {
    const { watchdog } = this.#options;
    const endedMs = bootTimeMs();
    this.#noteLateness();
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
    if (!gone && await this.#release() === "lost") gone = true;
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
    if (this.#lost !== null) return `${lease} went while ${command} ran (${this.#lost})`;
    if (ranOut) return `${lease} ran out while ${command} ran (${this.#reason})`;
    return `${command} was ended, because ${lease} was about to run out (${this.#reason})`;
  }

  /**
   * Gives the grant back. What the command left running keeps the lock, which it inherited; the store
   * stays busy on this host until that ends.
   */
  async #release(): Promise<"released" | "lost" | "unknown"> {
    const { token } = this.#options.grant.result;
    const signal = AbortSignal.timeout(RELEASE_WITHIN_MS);
    try {
      await this.#connection.call("release", { token }, { signal });
      return "released";
    } catch (error) {
      if (error instanceof AgentError && error.kind === "lost") {
        this.#lost ??= error.message.replace(/\.$/, "");
        return "lost";
      }
      return "unknown";
    }
  }
}
