/**
 * The wrapper's side of the watchdog: starts it, tells it the state, starts it again if it dies.
 * @module
 */
import { say } from "../output.ts";
import { newsRead } from "./news.ts";
import type { Hold } from "./plan.ts";
import { linesOf, STATE_VARIABLE, WATCHDOG_COMMAND } from "./watchdog_state.ts";
import type { WatchdogReport, WatchdogState } from "./watchdog_state.ts";

/** A watchdog that keeps dying is not started for ever. */
const MAX_STARTS = 3;
/** It answers in a millisecond; a machine that is too busy must not hold up the exit status. */
const ANSWER_WITHIN_MS = 500;

/** The watchdog of one guarded command. */
export class WatchdogLink {
  /** The processes that were started for it. */
  readonly pids = new Set<number>();
  #state: WatchdogState;
  #process: ReturnType<typeof startProcess>;
  #starts = 1;
  #onEnding: (hold: Hold) => void = () => {};
  #answered: () => void = () => {};

  /** Starts it at once: it is ready by the time that the grant is there. */
  constructor(mark: string) {
    this.#state = {
      mark,
      group: null,
      cgroup: null,
      lock: null,
      hold: null,
      grant: null,
      done: false,
      question: 0,
    };
    this.#process = this.#start();
  }

  /** `listener` is called when the watchdog asks the command to end, with the hold as it stays. */
  onEnding(listener: (hold: Hold) => void): void {
    this.#onEnding = listener;
  }

  /** Tells what changed. */
  tell(change: Partial<WatchdogState>): void {
    this.#state = { ...this.#state, ...change };
    this.#send();
  }

  /** Nothing is left to watch: it ends. */
  dismiss(): void {
    this.tell({ done: true });
  }

  /** Resolves when all that the watchdog did so far was told to the listener. */
  async hear(): Promise<void> {
    const answer = new Promise<void>((resolve) => this.#answered = resolve);
    this.tell({ question: this.#state.question + 1 });
    // Stopped meanwhile, its time is over, but the answer may be there.
    await Promise.race([answer, Bun.sleep(ANSWER_WITHIN_MS).then(newsRead)]);
  }

  async #listen(stdout: ReadableStream<Uint8Array>): Promise<void> {
    for await (const line of linesOf(stdout)) {
      const { answer, ending } = JSON.parse(line) as WatchdogReport;
      if (ending !== null) this.#onEnding(ending);
      if (answer === this.#state.question) this.#answered();
    }
  }

  #send(): void {
    try {
      this.#process.stdin.write(`${JSON.stringify(this.#state)}\n`);
      // A promise where the pipe is full; what it carries then goes later, in order.
      Promise.resolve(this.#process.stdin.flush()).catch(() => {});
    } catch {
      // It died: #died() tells its successor.
    }
  }

  #died(): void {
    if (this.#state.done) return;
    if (this.#starts >= MAX_STARTS) {
      say(
        "the watchdog died repeatedly; if this process is killed, nothing ends the command in time",
      );
      return;
    }
    this.#starts++;
    this.#process = this.#start();
  }

  #start(): ReturnType<typeof startProcess> {
    const child = startProcess(this.#state, () => this.#died());
    this.pids.add(child.pid);
    this.#listen(child.stdout).catch(() => {}); // it ends with the watchdog
    return child;
  }
}

function startProcess(state: WatchdogState, onExit: () => void) {
  const child = Bun.spawn({
    cmd: [...ownProgram(), WATCHDOG_COMMAND],
    // A session of its own: no key and no signal to a group reaches it.
    detached: true,
    // Nothing of the caller's is kept open or in its environment.
    stdin: "pipe",
    stdout: "pipe",
    stderr: "ignore",
    env: { [STATE_VARIABLE]: JSON.stringify(state) },
    onExit,
  });
  child.unref();
  return child;
}

/** This very program, even where its file was replaced meanwhile. */
function ownProgram(): string[] {
  const isCompiled = Bun.main.startsWith("/$bunfs/");
  return isCompiled ? ["/proc/self/exe"] : [process.execPath, Bun.main];
}
