/**
 * A wrapper that stands still just where it tells its watchdog of a renewal, until the watchdog has ended
 * the command by the deadline before. Its argument is a file that the command makes when asked to end. Prints
 * the wrapper's exit status. In a process of its own: a wrapper takes over signals and orphans.
 */
import { existsSync } from "node:fs";
import type { Connection, Notification } from "../../src/client/mod.ts";
import { WATCHDOG_COMMAND, type WatchdogState } from "../../src/cli/guard/watchdog_state.ts";
import { WatchdogLink } from "../../src/cli/guard/watchdog_link.ts";
import { runWatchdog } from "../../src/cli/guard/watchdog.ts";
import { Signals } from "../../src/cli/guard/signals.ts";
import { Wrapper } from "../../src/cli/guard/wrapper.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";

const TTL_MS = 2_400;
const COMMAND = `trap 'echo > "$0"; exit 0' TERM; while :; do sleep 0.02; done`;

class LateLink extends WatchdogLink {
  readonly #asked: string;
  readonly #deadlineMs: number;

  constructor(asked: string, deadlineMs: number) {
    super("0123456789abcdef");
    this.#asked = asked;
    this.#deadlineMs = deadlineMs;
  }

  override tell(change: Partial<WatchdogState>): void {
    const { hold } = change;
    if (hold && hold.deadlineMs > this.#deadlineMs) {
      while (!existsSync(this.#asked)) Bun.sleepSync(5);
    }
    super.tell(change);
  }
}

const [first = ""] = process.argv.slice(2);
if (first === WATCHDOG_COMMAND) {
  await runWatchdog();
} else {
  console.log(await stoppedWrapper(first));
}

function stoppedWrapper(asked: string): Promise<number> {
  const deadlineMs = bootTimeMs() + TTL_MS;
  const token = "t".repeat(22);
  const renewal: Notification = {
    method: "renewed",
    params: { token, store: "one", deadline_boot_ms: deadlineMs + 100_000 },
  };
  const connection = {
    // Told once the command runs: it is started before the event loop turns.
    onNotification: (listener: (notification: Notification) => void) => {
      setTimeout(() => listener(renewal));
      return () => {};
    },
    closed: new Promise<null>(() => {}),
    call: (method: string) =>
      method === "verify" ? Promise.reject(new Error()) : Promise.resolve({}),
  } as unknown as Connection;
  return new Wrapper({
    command: { path: Buffer.from("/bin/sh"), argv: ["sh", "-c", COMMAND, asked].map(Buffer.from) },
    grant: {
      result: {
        token,
        store: "one",
        epoch: 1,
        node: "alpha",
        unguarded: null,
        remaining_ms: TTL_MS,
        deadline_boot_ms: deadlineMs,
      } as never,
      lockFd: null,
      agentPid: 0,
      ttlMs: TTL_MS,
      connection,
      early: [],
    },
    shared: false,
    socket: "/nowhere/agent.sock",
    mark: "0123456789abcdef",
    killAfterMs: null,
    signals: new Signals(() => {}),
    watchdog: new LateLink(asked, deadlineMs),
  }).run();
}
