/**
 * A process beside a program that ends the program's group when this process cannot: because it was
 * killed, or because its runtime does not permit it to send signals.
 * @module
 */
import { type ChildProcess, spawn } from "node:child_process";
import { MisconfiguredError } from "./errors.ts";

/** In plain shell, because it must be there wherever this is. */
const SHELL = "/bin/sh";

/**
 * Is told the group, then what to send to it, each answered by whether it reached anybody. The end of its
 * input without `done` means that whoever started it is gone, by SIGKILL, too: then it kills the group.
 * Nothing but that ends it, not even that nobody reads its answers any more.
 *
 * `0` asks whether anybody runs. Who has ended stays in the group until its parent waits for it, which some
 * never do: told apart by /proc, where there is one.
 */
const SCRIPT = `
trap '' HUP INT TERM PIPE
runs() {
  kill -0 "-$group" || return 1
  for stat in /proc/[0-9]*/stat; do
    read -r line <"$stat" || continue
    set -- \${line##*\\) }
    test "$3" = "$group" || continue
    test "$1" = Z || test "$1" = X || return 0
  done
  test ! -r /proc/self/stat
}
read -r group || exit
while read -r word; do
  case $word in
    done) exit ;;
    0) runs ;;
    *) kill "-$word" "-$group" ;;
  esac && echo yes || echo no
done
kill -KILL "-$group"`;

/** A signal as a shell calls it; 0 only looks whether anybody runs. */
export type Word = "TERM" | "KILL" | "0";

/** The process. */
export class Watchdog {
  readonly #child: ChildProcess;
  readonly #asked: ((answer: boolean | null) => void)[] = [];
  #told = false;

  /**
   * Starts one; it waits to be told whom to watch.
   *
   * @throws {MisconfiguredError} if it cannot be started: nothing may run under a lease without.
   */
  static start(): Promise<Watchdog> {
    return new Promise((resolve, reject) => {
      const failed = (cause: Error) =>
        reject(
          new MisconfiguredError(
            `Cannot run a program under a lease without ${SHELL}, which ends it when this process ` +
              `is killed: ${cause.message} (Deno: name ${SHELL} in --allow-run, beside the program)`,
            { cause },
          ),
        );
      try {
        const child = spawn(SHELL, ["-c", SCRIPT], {
          // Out of reach of what a terminal sends to its foreground group.
          detached: true,
          stdio: ["pipe", "pipe", "ignore"],
        });
        child.once("error", failed);
        child.once("spawn", () => resolve(new Watchdog(child)));
      } catch (error) {
        failed(error as Error);
      }
    });
  }

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on("error", () => {});
    child.stdin!.on("error", () => {});
    child.stdout!.on("data", (chunk) => {
      for (const [answer] of String(chunk).matchAll(/yes|no/g)) {
        this.#asked.shift()?.(answer === "yes");
      }
    });
    child.once("close", () => {
      for (const answer of this.#asked.splice(0)) answer(null);
    });
  }

  /** Tells it whom to watch. */
  watch(group: number): void {
    this.#told = true;
    this.#child.stdin!.write(`${group}\n`);
  }

  /** Has it send a signal; resolves with whether there was anybody, null if it is gone itself. */
  send(word: Word): Promise<boolean | null> {
    return new Promise((resolve) => {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) return resolve(null);
      this.#asked.push(resolve);
      this.#child.stdin!.write(`${word}\n`);
    });
  }

  /** Ends it: the group is over, or never was, and its number may be somebody else's soon. */
  dismiss(): void {
    this.#child.stdin!.end(this.#told ? "done\n" : "");
  }
}
