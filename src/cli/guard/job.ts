/**
 * A running command: its end, its stops, its signals and its share of the terminal.
 * @module
 */
import { constants } from "node:os";
import { ownGroup, pollJob, signalGroup, signalProcess } from "../../sys/job.ts";
import { othersInGroup } from "./sweep.ts";
import { canBeStopped, isInteractive, Terminal } from "./terminal.ts";

const { SIGCONT, SIGINT, SIGTSTP, SIGTTIN, SIGTTOU } = constants.signals;

/** How a command ended: its exit status as shells count it, and the signal that ended it, if any. */
export interface Ending {
  readonly status: number;
  readonly signal: number | null;
}

/** What a job needs of its surroundings. */
export interface JobHooks {
  /** About to be stopped with the command, for an unknown time. */
  readonly onSuspend?: () => void;
  /** Continued. */
  readonly onResume?: () => void;
  /** Something happened to children, perhaps to others than the command. */
  readonly onChildren?: () => void;
}

/** A command in the process group `group`, started just now. */
export class Job {
  /** Resolves when the command's own process has ended, whatever it left behind. */
  readonly ended: Promise<Ending>;
  readonly #group: number;
  readonly #hooks: JobHooks;
  readonly #terminal = Terminal.open();
  #hadTerminal = false;

  constructor(group: number, hooks: JobHooks) {
    this.#group = group;
    this.#hooks = hooks;
    if (this.#terminal?.isOurs && isInteractive()) this.#giveTerminal();
    this.ended = new Promise((resolve) => {
      const look = () => {
        hooks.onChildren?.();
        const ending = this.#look();
        if (ending === null) return;
        process.off("SIGCHLD", look);
        clearInterval(timer);
        this.#terminal?.takeBack(group);
        resolve(ending);
      };
      process.on("SIGCHLD", look);
      // It may have ended before we listened, or we were started with SIGCHLD held off.
      const timer = setInterval(look, 100);
      look();
    });
  }

  /** Passes a signal that we got on to the command. */
  forward(signal: number): void {
    if (signal === SIGCONT) return this.#resume();
    signalGroup(this.#group, signal);
  }

  #look(): Ending | null {
    for (let change = pollJob(this.#group); change !== null; change = pollJob(this.#group)) {
      switch (change.kind) {
        case "exited":
          return { status: change.status, signal: null };
        case "signalled":
          if (change.signal === SIGINT) this.#interruptOwnGroup();
          return { status: 128 + change.signal, signal: change.signal };
        case "stopped":
          this.#stopped(change.signal);
      }
    }
    return null;
  }

  #giveTerminal(): void {
    this.#hadTerminal = true;
    this.#terminal!.give(this.#group);
  }

  /**
   * The key that interrupted the command went to it alone. A script that runs us, or the rest of
   * a pipeline, would have got it too without us.
   */
  #interruptOwnGroup(): void {
    if (!this.#terminal?.isOf(this.#group)) return;
    process.kill(0, SIGINT);
  }

  #stopped(signal: number): void {
    const terminal = this.#terminal;
    // Stopped by somebody for a reason of theirs; who stops it will continue it.
    if (terminal === null || ![SIGTSTP, SIGTTIN, SIGTTOU].includes(signal)) return;
    if (signal !== SIGTSTP) {
      // It wants the terminal: give it what is ours to give.
      if (terminal.isOurs) this.#giveTerminal();
      if (terminal.isOf(this.#group)) return void signalGroup(this.#group, SIGCONT);
    }
    this.#suspend();
  }

  /** Stops us and our group as well, so that the shell shows its prompt, until it continues us. */
  #suspend(): void {
    if (!canBeStopped()) return this.#resume();
    this.#hooks.onSuspend?.();
    const wasForeground = this.#terminal!.isOf(this.#group);
    this.#terminal!.takeBack(this.#group);
    // The key went to the command alone, the others of our group are to stop, too. Not we by the same
    // signal: we would hear of it after we were continued, and pass it on.
    if (wasForeground) {
      for (const pid of othersInGroup(ownGroup())) signalProcess(pid, SIGTSTP);
    }
    process.kill(process.pid, "SIGSTOP");
    // Here we are continued.
    this.#resume();
  }

  #resume(): void {
    if (this.#hadTerminal && this.#terminal?.isOurs) this.#terminal.give(this.#group);
    signalGroup(this.#group, SIGCONT);
    this.#hooks.onResume?.();
  }
}
