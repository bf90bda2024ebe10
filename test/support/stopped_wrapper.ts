/**
 * A wrapper that stands still at a certain point. `renewal FILE`: just where it tells its watchdog of a
 * renewal, until the watchdog has ended the command by the deadline before; FILE is made by the command
 * when asked to end. `start FILE`: right before it starts the command, which makes FILE, until the deadline
 * has passed. Prints the exit status. In a process of its own: a wrapper takes over signals and orphans.
 */
import { existsSync } from "node:fs";
import type { Connection, Notification } from "../../src/client/mod.ts";
import { WATCHDOG_COMMAND, type WatchdogState } from "../../src/cli/guard/watchdog_state.ts";
import { WatchdogLink } from "../../src/cli/guard/watchdog_link.ts";
import type { Failure } from "../../src/cli/failure.ts";
import { runWatchdog } from "../../src/cli/guard/watchdog.ts";
import { Signals } from "../../src/cli/guard/signals.ts";
import { Wrapper } from "../../src/cli/guard/wrapper.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";

const TTL_MS = 2_400;
const MARK = "0123456789abcdef";
const WHEN_ASKED = `trap 'echo > "$0"; exit 0' TERM; while :; do sleep 0.02; done`;

class LateStart extends WatchdogLink {
  override tell(change: Partial<WatchdogState>): void {
    super.tell(change);
    const { hold, grant } = change;
    // It is told of the grant right before the start.
    while (hold && grant && bootTimeMs() < hold.deadlineMs) Bun.sleepSync(5);
  }
}

class LateRenewal extends WatchdogLink {
  readonly #asked: string;
  readonly #deadlineMs: number;

  constructor(asked: string, deadlineMs: number) {
    super(MARK);
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

const [first = "", file = ""] = process.argv.slice(2);
if (first === WATCHDOG_COMMAND) {
  await runWatchdog();
} else {
  console.log(await stoppedWrapper(first, file).catch((error: Failure) => error.exit));
  process.exit(0);
}

function stoppedWrapper(at: string, file: string): Promise<number> {
  const deadlineMs = bootTimeMs() + TTL_MS;
  const command = at === "start" ? `echo > "$0"` : WHEN_ASKED;
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
    command: { path: Buffer.from("/bin/sh"), argv: ["sh", "-c", command, file].map(Buffer.from) },
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
    mark: MARK,
    killAfterMs: TTL_MS / 3,
    signals: new Signals(() => {}),
    watchdog: at === "start" ? new LateStart(MARK) : new LateRenewal(file, deadlineMs),
  }).run();
}
