/**
 * A wrapper that stands still just where it starts its command: in the command's cgroup, its watchdog told of a
 * deadline that is about to pass. Something that runs in the cgroup stands for what it has started. Prints
 * `no cgroup` where there are none for us; else `alive` once that was killed, and then what its watchdog found.
 */
import { Cgroup } from "../../src/sys/cgroup.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { runWatchdog } from "../../src/cli/guard/watchdog.ts";
import { WatchdogLink } from "../../src/cli/guard/watchdog_link.ts";
import { WATCHDOG_COMMAND } from "../../src/cli/guard/watchdog_state.ts";
import { isRunning } from "./running.ts";

const MARK = "0123456789abcdef";

if (process.argv[2] === WATCHDOG_COMMAND) {
  await runWatchdog();
} else {
  await standInside();
}

async function standInside(): Promise<void> {
  const watchdog = new WatchdogLink(MARK);
  let ended = false;
  watchdog.onEnding(() => ended = true);
  const cgroup = Cgroup.make(MARK);
  if (cgroup === null) {
    watchdog.dismiss();
    return console.log("no cgroup");
  }
  const hold = { deadlineMs: bootTimeMs() + 1_500, killAfterMs: 500, endingSinceMs: null };
  watchdog.tell({ hold, cgroup: cgroup.path });
  // Told over a pipe, which this process has to see emptied before it stands still.
  await watchdog.hear();
  cgroup.around(() => {
    // Nothing but the cgroup shows whose it is.
    const { pid } = Bun.spawn(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], { env: {} });
    while (isRunning(pid)) Bun.sleepSync(5);
  });
  console.log("alive");
  await watchdog.hear();
  console.log(ended ? "the watchdog ended it" : "nobody ended it");
  watchdog.dismiss();
  cgroup.remove();
}
