/**
 * The last resort for guarded commands: their deadline has come, and neither their wrapper nor their
 * watchdog has ended them, because they were killed or stopped. Where the agent has the right to, it
 * ends them; where not, it says so.
 * @module
 */
import { constants } from "node:os";
import { probeLock } from "../agent/lock_probe.ts";
import type { Left } from "../agent/types.ts";
import type { Process } from "../cli/guard/sweep.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { LockFiles } from "../ports/lock_file.ts";
import type { Log } from "../service/log.ts";
import { maySignal, signalProcess } from "../sys/job.ts";
import { carriersOf, marksOf } from "./marked.ts";

/**
 * How long after the deadline a client that was told of the loss may take to let go, ms. Its wrapper or
 * watchdog kills 20 ms before, and lets go when nothing runs: in an ordinary outage nobody is looked for.
 */
const LETS_GO_MS = 250;
/** Between two looks, ms: what was killed ends at once, but may have forked meanwhile. */
const LOOK_EVERY_MS = 20;
/** After so many looks whatever is left does not die of SIGKILL: a disk that hangs. */
const MAX_LOOKS = 50;
/** On a host with very many processes a look takes long: the agent has other things to do, too. */
const MAX_SHARE = 1 / 5;

/** What the leftovers are ended with. */
export interface LeftoversPorts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly locks: LockFiles;
  readonly log: Log;
  /** Whether the client that was passed the lock with this token has not let go. */
  readonly isOut: (token: string) => boolean;
  /** Looks at all processes of the host, which takes long. */
  readonly processes: () => readonly Process[];
}

/** A command that is being ended. */
interface Ending {
  readonly store: string;
  readonly mark: string;
  readonly killed: Set<number>;
  looks: number;
}

/** Ends what is left of lost grants and gone clients, when their deadlines come. */
export class Leftovers {
  readonly #ports: LeftoversPorts;
  /** By token: an outage loses very many at once, and a client that was told of it may go. */
  readonly #awaited = new Map<string, Left & { readonly dueMs: number }>();
  #endings: Ending[] = [];
  /** When the look that is on its way comes; Infinity when none is. */
  #wakeMs = Infinity;
  #notBeforeMs = 0;
  #cancel = () => {};

  constructor(ports: LeftoversPorts) {
    this.#ports = ports;
  }

  /** A grant was lost, or its client went: what runs under it is ended at its deadline, or we end it. */
  expect(left: Left): void {
    const dueMs = left.untilMs + (left.gone ? 0 : LETS_GO_MS);
    this.#awaited.set(left.token, { ...left, dueMs });
    this.#wakeAt(dueMs);
  }

  /** Stops looking; the agent ends. */
  close(): void {
    this.#cancel();
    this.#wakeMs = -Infinity;
  }

  #wakeAt(atMs: number): void {
    const wakeMs = Math.max(atMs, this.#notBeforeMs);
    if (wakeMs >= this.#wakeMs) return;
    this.#cancel();
    this.#wakeMs = wakeMs;
    const delayMs = Math.max(0, wakeMs - this.#ports.clock.bootMs());
    this.#cancel = this.#ports.timers.after(delayMs, () => this.#onWake());
  }

  #onWake(): void {
    this.#wakeMs = Infinity;
    // Each goes through all that are awaited: in an outage these are many, their deadlines all different.
    this.#notBeforeMs = this.#ports.clock.bootMs() + LOOK_EVERY_MS;
    const due = this.#takeDue();
    if (due.length > 0 || this.#endings.length > 0) this.#look(due);
    if (this.#endings.length > 0) return this.#wakeAt(0);
    let nextMs = Infinity;
    for (const { dueMs } of this.#awaited.values()) nextMs = Math.min(nextMs, dueMs);
    if (nextMs < Infinity) this.#wakeAt(nextMs);
  }

  /** Those under which something may run still. Timers can be early: compared at use. */
  #takeDue(): Left[] {
    const nowMs = this.#ports.clock.bootMs();
    const due = [...this.#awaited.values()].filter(({ dueMs }) => dueMs <= nowMs);
    for (const { token } of due) this.#awaited.delete(token);
    return due.filter((left) => this.#mayRun(left));
  }

  /** Nearly always not: the wrapper or the watchdog has done it. Looking at every process takes long. */
  #mayRun({ gone, store, token }: Left): boolean {
    // While its client is there, the agent itself has the lock.
    if (!gone) return this.#ports.isOut(token);
    const found = probeLock(this.#ports.locks, store)?.kind ?? null;
    return found === null || found === "busy";
  }

  /** One look at all processes, for all that are due or being ended. */
  #look(due: readonly Left[]): void {
    const { clock } = this.#ports;
    const startedMs = clock.bootMs();
    const processes = this.#ports.processes();
    const marks = marksOf(new Set(due.map(({ token }) => token)), processes);
    // A client that goes while its command is being ended is due once more.
    const known = new Set(this.#endings.map(({ mark }) => mark));
    for (const { store, token } of due) {
      const mark = marks.get(token);
      if (mark === undefined || known.has(mark)) continue;
      this.#endings.push({ store, mark, killed: new Set(), looks: 0 });
    }
    this.#endAll(processes);
    const tookMs = clock.bootMs() - startedMs;
    this.#notBeforeMs = Math.max(this.#notBeforeMs, startedMs + tookMs / MAX_SHARE);
  }

  #endAll(processes: readonly Process[]): void {
    const carriers = carriersOf(new Set(this.#endings.map(({ mark }) => mark)), processes);
    this.#endings = this.#endings.filter((ending) => {
      const members = [...carriers.get(ending.mark)!];
      const ours = members.filter(maySignal);
      for (const pid of ours) {
        signalProcess(pid, constants.signals.SIGKILL);
        ending.killed.add(pid);
      }
      ending.looks++;
      if (ours.length > 0 && ending.looks < MAX_LOOKS) return true;
      this.#tell(ending, members);
      return false;
    });
  }

  #tell({ store, killed }: Ending, alive: readonly number[]): void {
    const { log } = this.#ports;
    const why = "the deadline of their grant came while these processes ran: agent guard and its " +
      "watchdog were killed or stopped, or too slow";
    if (killed.size > 0) {
      log.event("warn", "leftovers_killed", { store, pids: [...killed], message: why });
    }
    if (alive.length > 0) {
      const message = `${why}; end these processes yourself`;
      log.event("error", "leftovers_alive", { store, pids: alive, message });
    }
  }
}
