/**
 * The last resort for guarded commands: their deadline has come, and neither their wrapper nor their
 * watchdog has ended them, because they were killed or stopped. Where the agent has the right to, it
 * ends them; where not, it says so.
 * @module
 */
import { constants } from "node:os";
import { probeLock } from "../agent/lock_probe.ts";
import type { Left } from "../agent/types.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { LockFiles } from "../ports/lock_file.ts";
import type { Log } from "../service/log.ts";
import { maySignal, signalProcess } from "../sys/job.ts";
import { processStartTime } from "../sys/proc.ts";
import { carriersOf, guardKey, marksOf } from "./marked.ts";
import type { Seen } from "./seen.ts";

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
  /** Looks at all processes of the host, and at the cgroups of these users', which takes long. */
  readonly processes: (uids: ReadonlySet<number>) => readonly Seen[];
  /** Which processes have these lock files locked by what this agent passed on, by file; takes long, too. */
  readonly heirs: (paths: readonly string[]) => ReadonlyMap<string, readonly number[]>;
}

/** A grant whose command is being ended. */
interface Ending {
  left: Left;
  /** Null where nothing carries one: its client may be no guard at all. */
  readonly mark: string | null;
  readonly killed: Set<number>;
  /** What is not its user's, or not ours to end: named at last, where it still runs. */
  readonly others: Set<number>;
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
    const all = [...due, ...this.#endings.map(({ left }) => left)];
    const uids = new Set(all.flatMap(({ uid }) => uid ?? []));
    const processes = this.#ports.processes(uids);
    const marks = marksOf(due, processes);
    // A client that goes while its command is being ended is due once more.
    const known = new Map(this.#endings.map((ending) => [ending.left.token, ending]));
    for (const left of due) {
      const again = known.get(left.token);
      const mark = marks.get(left.token) ?? null;
      if (again !== undefined) again.left = left;
      else if (mark !== null || left.gone) {
        this.#endings.push({ left, mark, killed: new Set(), others: new Set(), looks: 0 });
      }
    }
    this.#endAll(processes);
    const tookMs = clock.bootMs() - startedMs;
    this.#notBeforeMs = Math.max(this.#notBeforeMs, startedMs + tookMs / MAX_SHARE);
  }

  #endAll(processes: readonly Seen[]): void {
    const guards = this.#endings.flatMap(({ left: { token, uid }, mark }) =>
      uid === undefined || mark === null ? [] : [{ token, uid, mark }]
    );
    const carriers = carriersOf(guards, processes);
    const bare = this.#endings.filter((ending) => {
      const { left: { uid }, mark } = ending;
      if (uid === undefined || mark === null) return true;
      const { own, others } = carriers.get(guardKey({ uid, mark }))!;
      return !this.#end(ending, { own: [...own], others: [...others] });
    });
    const over = new Set(
      this.#endHeirs(bare, new Map(processes.map(({ pid, uid }) => [pid, uid]))),
    );
    for (const ending of over) this.#tell(ending);
    this.#endings = this.#endings.filter((ending) => !over.has(ending));
  }

  /** Ends whoever has the lock of a gone guard still, though nothing shows any more that it is the guard's. */
  #endHeirs(endings: readonly Ending[], users: ReadonlyMap<number, number | null>): Ending[] {
    const paths = new Map<Ending, string>();
    for (const ending of endings) {
      if (this.#isLastGranted(ending.left)) {
        paths.set(ending, this.#ports.locks.path(ending.left.store));
      }
    }
    const heirs = paths.size === 0 ? null : this.#ports.heirs([...paths.values()]);
    return endings.filter((ending) => {
      const { left: { uid }, mark } = ending;
      const found = heirs?.get(paths.get(ending) ?? "") ?? [];
      const isOwn = (pid: number) => mark !== null && uid !== undefined && users.get(pid) === uid;
      const others = found.filter((pid) => !isOwn(pid));
      return !this.#end(ending, { own: found.filter(isOwn), others });
    });
  }

  /**
   * Whether who has the lock can have it from this grant alone: it is gone, was granted to nobody else at
   * the same time, and a later one would have written its own line before it passed the lock on.
   */
  #isLastGranted({ store, gone, shared, pid }: Left): boolean {
    if (!gone || shared || pid === 0) return false;
    const found = probeLock(this.#ports.locks, store);
    return found?.kind === "busy" && found.fence?.pid === pid;
  }

  /** Kills what may be killed; whether there was something, so that it is looked at again. */
  #end(
    ending: Ending,
    { own, others }: { own: readonly number[]; others: readonly number[] },
  ): boolean {
    const ours = own.filter(maySignal);
    for (const pid of ours) {
      signalProcess(pid, constants.signals.SIGKILL);
      ending.killed.add(pid);
    }
    if (ours.length > 0) ending.looks++;
    const goesOn = ours.length > 0 && ending.looks < MAX_LOOKS;
    const alive = goesOn ? own.filter((pid) => !ours.includes(pid)) : own;
    for (const pid of [...alive, ...others]) ending.others.add(pid);
    return goesOn;
  }

  #tell({ left: { store }, mark, killed, others }: Ending): void {
    const { log } = this.#ports;
    const why = mark === null
      ? "they have the lock of a grant whose client is gone and whose deadline has come"
      : "the deadline of their grant came while these processes ran: agent guard and its " +
        "watchdog were killed or stopped, or too slow";
    if (killed.size > 0) {
      log.event("warn", "leftovers_killed", { store, pids: [...killed], message: why });
    }
    const alive = [...others].filter((pid) => processStartTime(pid) !== null);
    if (alive.length > 0) {
      const message = `${why}; end these processes yourself`;
      log.event("error", "leftovers_alive", { store, pids: alive, message });
    }
  }
}
