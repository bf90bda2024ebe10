/**
 * The signals that the wrapper gets and the command is meant to have.
 * @module
 */
import { readFileSync } from "node:fs";
import { constants } from "node:os";

type Signal = keyof typeof constants.signals & NodeJS.Signals;

/** Those that mean the command, whoever sends them. */
const FORWARDED: readonly Signal[] = [
  "SIGINT",
  "SIGTERM",
  "SIGHUP",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
  "SIGALRM",
  "SIGWINCH",
  "SIGTSTP",
  "SIGCONT",
];

/** Those that end us while no command runs yet. */
const ENDING: ReadonlySet<Signal> = new Set(["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]);

/** Catches signals: before the command runs, those that end us; then, all that are forwarded. */
export class Signals {
  readonly #ignored = ignoredSignals();
  readonly #onEnd: (signal: number) => void;
  #forward: ((signal: number) => void) | null = null;
  #caught = new Set<Signal>();

  /** `onEnd` is called for a signal that asks us to end before there is a command. */
  constructor(onEnd: (signal: number) => void) {
    this.#onEnd = onEnd;
    for (const signal of ENDING) this.#catch(signal);
    // Were it ignored, as some callers leave it, the kernel would tell nobody how the command ended.
    process.on("SIGCHLD", () => {});
  }

  /** From now on, signals are the command's. */
  forwardTo(forward: (signal: number) => void): void {
    this.#forward = forward;
    for (const signal of FORWARDED) this.#catch(signal);
  }

  /** What the caller chose to ignore (nohup) stays so, for the command as well. */
  #catch(signal: Signal): void {
    const number = constants.signals[signal];
    if (this.#ignored.has(number) || this.#caught.has(signal)) return;
    this.#caught.add(signal);
    process.on(signal, () => (this.#forward ?? this.#onEnd)(number));
  }
}

function ignoredSignals(): Set<number> {
  const mask = /^SigIgn:\s*([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1];
  const bits = BigInt(`0x${mask ?? "0"}`);
  const ignored = new Set<number>();
  for (let signal = 1; signal <= 64; signal++) {
    if ((bits >> BigInt(signal - 1)) & 1n) ignored.add(signal);
  }
  return ignored;
}
