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
import { EXIT, Failure } from "../failure.ts";
import { say } from "../output.ts";
import { commandOf } from "./command.ts";
import type { GuardedCommand } from "./command.ts";
import { freeDescriptor } from "./descriptor.ts";
import { Enforcer } from "./enforcer.ts";
import { guardedEnvironment, restoreDescriptorLimit } from "./environment.ts";
import { Job } from "./job.ts";
import type { Ending } from "./job.ts";
import type { LockedGrant } from "./locked_grant.ts";
import { killAfterMs } from "./plan.ts";
import type { Hold } from "./plan.ts";
import type { Signals } from "./signals.ts";
import type { WatchdogLink } from "./watchdog_link.ts";

const { SIGTERM, SIGKILL } = constants.signals;

/** The agent answers a release from memory; one that hangs must not hold up the exit status. */
const RELEASE_WITHIN_MS = 2_000;
/** As above, while the command runs on. */
const VERIFY_WITHIN_MS = 500;
/** How often to look whether the last process has ended. */
const LOOK_EVERY_MS = 20;
/** Killed processes end at once, unless the kernel or another user's rights hold them. */
const KILLED_WITHIN_MS = 2_000;

/** What a granted command is run with. */
export interface WrapperOptions {
  readonly command: GuardedCommand;
  readonly grant: LockedGrant;
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
  /** The command's own; null where none could be made. */
  #cgroup: Cgroup | null;
  /** Why the lease went or is about to. */
  #reason = "the agent stopped renewing it";

  constructor(options: WrapperOptions) {
    const { grant, mark } = options;
    this.#options = options;
    this.#cgroup = Cgroup.make(mark);
    this.#connection = grant.connection;
    const parent = { pid: process.pid, except: options.watchdog.pids };
    this.#enforcer = new Enforcer({ mark, group: null, cgroup: null, parent }, {
      onAct: () => this.#onAct(),
    });
    this.#hold = {
      deadlineMs: grant.result.deadline_boot_ms,
      killAfterMs: killAfterMs(options.killAfterMs, grant.ttlMs ?? grant.result.remaining_ms),
      lostAtMs: null,
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
    const group = await this.#start();
    const cgroup = this.#cgroup;
    watchdog.tell({ group, cgroup: cgroup?.path ?? null });
    const job = new Job(group, {
      onSuspend: () => this.#onSuspend(),
      onResume: () => void this.#onResume(),
      onChildren: () => reapOrphans(new Set([group, ...watchdog.pids])),
    });
    signals.forwardTo((signal) => job.forward(signal));
    this.#enforcer.setPlace({ group, cgroup });
    this.#connection.onNotification((notification) => this.#onNotification(notification));
    for (const notification of grant.early) this.#onNotification(notification);
    this.#connection.closed.then((why) => why !== null && this.#onAgentGone());
    this.#enforcer.update(this.#hold);
    return await this.#finish(await job.ended);
  }

  async #start(): Promise<number> {
    const { command, grant, socket, mark, watchdog } = this.#options;
    const { result, lockFd } = grant;
    const as = freeDescriptor();
    const variables = {
      ZIT_LEASE_STORE: result.store,
      ZIT_LEASE_EPOCH: String(result.epoch),
      ZIT_LEASE_TOKEN: result.token,
      ZIT_LEASE_NODE: result.node,
      ...(lockFd === null ? {} : { ZIT_LEASE_LOCK_FD: String(as) }),
      ZIT_AGENT_SOCKET: socket,
    };
    restoreDescriptorLimit();
    try {
      const env = guardedEnvironment(variables, mark);
      const pass = lockFd === null ? null : { fd: lockFd, as };
      const start = () => startJob({ ...command, env, pass });
      if (this.#cgroup === null) return start();
      const { result: group, inside } = this.#cgroup.around(start);
      if (!inside) this.#cgroup = null;
      return group;
    } catch (error) {
      this.#cgroup?.remove();
      watchdog.dismiss();
      await this.#release();
      throw new Failure(
        `Cannot run ${commandOf(command)}: ${(error as Error).message}`,
        EXIT.notExecutable,
      );
    } finally {
      // The command has it now. A copy here would keep the store locked between the release and our
      // own end, when it is somebody else's turn already.
      if (lockFd !== null) closeSync(lockFd);
    }
  }

  #onNotification(notification: Notification): void {
    const { token } = this.#options.grant.result;
    if (notification.method === "lease" || notification.params.token !== token) return;
    if (notification.method === "renewed") {
      this.#update({ deadlineMs: notification.params.deadline_boot_ms });
    } else if (notification.method === "lost") {
      this.#reason = notification.params.message.replace(/\.$/, "");
      this.#update({ lostAtMs: this.#hold.lostAtMs ?? bootTimeMs() });
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

  #update(change: Partial<Hold>): void {
    this.#hold = { ...this.#hold, ...change };
    this.#options.watchdog.tell({ hold: this.#hold });
    if (!this.#suspended) this.#enforcer.update(this.#hold);
  }

  #onAct(): void {
    const { command, grant } = this.#options;
    say(
      `the lease on ${grant.result.store} is running out or gone (${this.#reason}): ` +
        `stopping ${commandOf(command)}`,
    );
  }

  /** While we are stopped the watchdog keeps watch; our own view of the deadline grows stale. */
  #onSuspend(): void {
    this.#suspended = true;
    this.#enforcer.stop();
  }

  async #onResume(): Promise<void> {
    if (!this.#suspended) return;
    this.#suspended = false;
    const { token, store } = this.#options.grant.result;
    // Read before the question: what the answer proves is counted from no later than this.
    const askedMs = bootTimeMs();
    try {
      const proof = await this.#connection.call(
        "verify",
        { token, store },
        { signal: AbortSignal.timeout(VERIFY_WITHIN_MS) },
      );
      this.#update({ deadlineMs: askedMs + proof.remaining_ms });
    } catch {
      this.#enforcer.update(this.#hold);
    }
  }

  async #finish(ending: Ending): Promise<number> {
    const { watchdog } = this.#options;
    const endedMs = bootTimeMs();
    let gone = this.#enforcer.acted || endedMs >= this.#hold.deadlineMs;
    if (gone) await this.#lastMember();
    this.#enforcer.stop();
    if (!gone && (ending.signal === SIGTERM || ending.signal === SIGKILL)) {
      // Was it the watchdog that ended it, while we were stopped?
      gone = (await watchdog.report()).acted;
    } else {
      watchdog.dismiss();
    }
    // What the command left running goes on without us.
    this.#cgroup?.remove();
    // A lost grant needs no release: it ends with our connection, also where the agent hangs.
    if (!gone && await this.#release() === "lost") gone = true;
    if (!gone) return ending.status;
    const { command, grant } = this.#options;
    say(
      `the lease on ${grant.result.store} went while ${commandOf(command)} ran ` +
        `(${this.#reason}); what it wrote may be incomplete: check the store, then run it again`,
    );
    return EXIT.lost;
  }

  /** When the lease went, we end last: whoever waits for us knows that nothing guarded still runs. */
  async #lastMember(): Promise<void> {
    const enforced = this.#hold;
    this.#enforcer.update(enforced);
    const untilMs = enforced.deadlineMs + KILLED_WITHIN_MS;
    let members = this.#enforcer.members();
    while (members.length > 0 && bootTimeMs() < untilMs) {
      await Bun.sleep(LOOK_EVERY_MS);
      members = this.#enforcer.members();
    }
    if (members.length > 0) say(`could not end processes ${members.join(", ")}: end them yourself`);
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
        this.#reason = error.message.replace(/\.$/, "");
        return "lost";
      }
      return "unknown";
    }
  }
}
