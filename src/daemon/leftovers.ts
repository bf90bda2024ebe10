/**
 * The last resort for guarded commands: their wrapper was killed, their watchdog as well, and their
 * deadline has come. Where the agent has the right to, it ends them; where not, it says so.
 * @module
 */
import { readdirSync } from "node:fs";
import { constants } from "node:os";
import { marksIn, membersOf, readEnvironment } from "../cli/guard/sweep.ts";
import { probeLock } from "../agent/lock_probe.ts";
import type { Clock, Timers } from "../ports/clock.ts";
import type { LockFiles } from "../ports/lock_file.ts";
import type { Log } from "../service/log.ts";
import { maySignal, signalProcess } from "../sys/job.ts";

/** Between two looks at what was killed: it ends at once, but may have forked meanwhile, ms. */
const SWEEP_EVERY_MS = 20;
/** After so many sweeps whatever is left does not die of SIGKILL: a disk that hangs. */
const MAX_SWEEPS = 50;

/** A grant whose client went with the lock in hand. */
export interface Left {
  readonly store: string;
  /** What was started under it has this token in its environment: a sure sign, for it is secret. */
  readonly token: string;
  /** The deadline that the client was told, on CLOCK_BOOTTIME. */
  readonly untilMs: number;
}

/** What the leftovers are ended with. */
export interface LeftoversPorts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly locks: LockFiles;
  readonly log: Log;
}

/** Ends what gone clients left running, when their deadlines come. */
export class Leftovers {
  readonly #ports: LeftoversPorts;
  readonly #cancels = new Set<() => void>();

  constructor(ports: LeftoversPorts) {
    this.#ports = ports;
  }

  /** A client went; its watchdog ends what it left, or we do. */
  expect(left: Left): void {
    this.#after(left.untilMs - this.#ports.clock.bootMs(), () => this.#look(left));
  }

  /** Stops looking; the agent ends. */
  close(): void {
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
  }

  #after(delayMs: number, act: () => void): void {
    const cancel = this.#ports.timers.after(Math.max(0, delayMs), () => {
      this.#cancels.delete(cancel);
      act();
    });
    this.#cancels.add(cancel);
  }

  /** Timers can be early by a clock that stood still: compared at use. */
  #look(left: Left): void {
    if (this.#ports.clock.bootMs() < left.untilMs) return this.expect(left);
    // Nearly always: the watchdog has done it. A look at every process would take milliseconds.
    const found = probeLock(this.#ports.locks, left.store)?.kind ?? null;
    if (found !== null && found !== "busy") return;
    const mark = markOf(left.token);
    if (mark !== null) this.#end(left.store, mark, new Set(), MAX_SWEEPS);
  }

  #end(store: string, mark: string, killed: Set<number>, sweeps: number): void {
    const target = { mark, group: null, cgroup: null, lock: null };
    const members = membersOf(target).map(({ pid }) => pid);
    const ours = members.filter(maySignal);
    for (const pid of ours) {
      signalProcess(pid, constants.signals.SIGKILL);
      killed.add(pid);
    }
    if (ours.length > 0 && sweeps > 1) {
      return this.#after(SWEEP_EVERY_MS, () => this.#end(store, mark, killed, sweeps - 1));
    }
    const { log } = this.#ports;
    const why =
      "agent guard and its watchdog were killed, and the deadline of their grant has come";
    if (killed.size > 0) {
      log.event("warn", "leftovers_killed", { store, pids: [...killed], message: why });
    }
    if (members.length > 0) {
      const message = `${why}; end these processes yourself`;
      log.event("error", "leftovers_alive", { store, pids: members, message });
    }
  }
}

/** The mark of the guard that gave out this token, by any process that was told it; null for none. */
function markOf(token: string): string | null {
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!(pid > 0)) continue;
    const variables = readEnvironment(pid);
    if (!variables.includes(`ZIT_LEASE_TOKEN=${token}`)) continue;
    const mark = marksIn(variables).at(-1);
    if (mark) return mark;
  }
  return null;
}
