/**
 * The watchdog: a process of its own session beside each guarded command.
 *
 * It ends the command when the lease ends and the wrapper does not do it, because it was killed or
 * stopped. It has no share in the lock, the terminal or the caller's descriptors, and it ends
 * when the wrapper says that all is done, or when there is nothing left to end.
 * @module
 */
import { writeSync } from "node:fs";
import { bootTimeMs } from "../../sys/boot_time.ts";
import { Cgroup } from "../../sys/cgroup.ts";
import { Enforcer } from "./enforcer.ts";
import type { Hold } from "./plan.ts";
import { askAgent } from "./reprieve.ts";
import { linesOf, STATE_VARIABLE } from "./watchdog_state.ts";
import type { WatchdogReport, WatchdogState } from "./watchdog_state.ts";

/** The wrapper asks the command to end at the planned time; the watchdog only if it did not. */
const AFTER_THE_WRAPPER_MS = 150;
const STDOUT = 1;
/** How often to look whether an orphaned command still runs, so as not to stay for nothing. */
const ORPHAN_LOOK_MS = 500;

/** Runs the watchdog until it has no more to do. */
export async function runWatchdog(): Promise<void> {
  // The wrapper ends it. What ends everything around it (a service's stop) must not end it first.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"] as const) {
    process.on(signal, () => {});
  }
  process.chdir("/"); // keeps no file system busy
  const watchdog = new Watchdog(process.ppid);
  watchdog.take(JSON.parse(process.env[STATE_VARIABLE]!));
  for await (const line of linesOf(Bun.stdin.stream())) {
    if (watchdog.take(JSON.parse(line))) return;
  }
  await watchdog.orphaned();
}

class Watchdog {
  readonly #wrapper: number;
  #state: WatchdogState | null = null;
  #enforcer: Enforcer | null = null;
  #ending: Hold | null = null;

  constructor(wrapper: number) {
    this.#wrapper = wrapper;
  }

  /** Takes news; returns whether it was the last. */
  take(state: WatchdogState): boolean {
    const asked = state.question > (this.#state?.question ?? 0);
    this.#state = state;
    if (asked) this.#report(state.question);
    if (state.done) {
      this.#enforcer?.stop();
      return true;
    }
    this.#enforcer ??= new Enforcer({ mark: state.mark, group: null, cgroup: null, lock: null }, {
      lateMs: AFTER_THE_WRAPPER_MS,
      reprieve: () => askAgent(this.#state!, this.#wrapper),
      onAct: (hold) => {
        this.#ending = hold;
        this.#report(null);
      },
    });
    // Before it tells of a group, the wrapper may be in the command's cgroup to start it.
    this.#setPlace(state.group === null ? this.#wrapper : null);
    if (state.hold !== null) this.#enforcer.update(state.hold);
    return false;
  }

  #setPlace(starter: number | null): void {
    const { group, cgroup, lock } = this.#state!;
    const place = { group, cgroup: cgroup === null ? null : Cgroup.at(cgroup), lock, starter };
    this.#enforcer!.setPlace(place);
  }

  /** Written before the command can have noticed anything; nobody may be left to read it. */
  #report(answer: number | null): void {
    const report: WatchdogReport = { answer, ending: this.#ending };
    try {
      writeSync(STDOUT, `${JSON.stringify(report)}\n`);
    } catch {
      // EPIPE: the wrapper was killed.
    }
  }

  /** The wrapper is gone without a word: stays until the command is, too. */
  async orphaned(): Promise<void> {
    if (this.#enforcer === null || this.#state === null) return;
    const { group, hold, cgroup } = this.#state;
    if (hold === null) return; // nothing was started
    this.#setPlace(null);
    this.#enforcer.look();
    // Killed as it started the command: a process that is just being made does not carry its mark yet.
    const untilMs = group === null ? hold.deadlineMs : 0;
    while (bootTimeMs() < untilMs || this.#enforcer.members().length > 0) {
      await Bun.sleep(ORPHAN_LOOK_MS);
    }
    this.#enforcer.stop();
    if (cgroup !== null) Cgroup.at(cgroup).remove();
  }
}
