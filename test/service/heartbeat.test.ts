/** The watchdog is fed only while the loop that renews leases advances. */
import { expect, test } from "bun:test";
import type { Agent } from "../../src/agent/agent.ts";
import { feedWatchdog } from "../../src/daemon/heartbeat.ts";
import type { Timers } from "../../src/ports/clock.ts";
import { openNotifier } from "../../src/service/notify.ts";
import { ServiceManager } from "../support/manager.ts";
import { plainAgent } from "../support/plain_agent.ts";
import { plainClock, plainTimers } from "../support/plain_clock.ts";
import { until } from "../support/wait.ts";

/** Timers that can stop firing, as they did in some runtimes after a resume (bun#34564). */
class StallingTimers implements Timers {
  stalled = false;
  readonly #missed: (() => void)[] = [];

  after(delayMs: number, wake: () => void): () => void {
    return plainTimers.after(delayMs, () => {
      if (this.stalled) this.#missed.push(wake);
      else wake();
    });
  }

  resume(): void {
    this.stalled = false;
    for (const wake of this.#missed.splice(0)) wake();
  }
}

function agentOn(timers: Timers): Agent {
  const time = {
    bootMs: () => plainClock.bootMs(),
    wallMs: () => plainClock.wallMs(),
    after: timers.after.bind(timers),
  };
  return plainAgent(time, { ttlMs: 300 });
}

test("feedWatchdog() stops when the renewal loop stalls, and goes on with it (iceberg#2034)", async () => {
  await using manager = await ServiceManager.start();
  const notifier = openNotifier({ NOTIFY_SOCKET: manager.address, WATCHDOG_USEC: "60000" });
  const timers = new StallingTimers();
  const agent = agentOn(timers);
  agent.setPinned(new Set(["one"]));
  const stop = feedWatchdog(notifier, () => agent);
  const fed = () => manager.count(/^WATCHDOG=1$/);
  const held = () => {
    let answer = false;
    agent.asking.one({ id: 1 }, "one", { ok: (yes) => answer = yes, fail() {} });
    return answer;
  };
  await until("it holds its store", held);
  await until("it is fed through several renewals", () => fed() > 20);

  timers.stalled = true;
  await until("the loop is late by a third of the TTL", () => agent.overdueMs > 100);
  // What was sent before arrives before this.
  notifier.status("stalled");
  await manager.heard(/^STATUS=stalled$/);
  const before = fed();
  await until("ten meals are due", () => agent.overdueMs > 100 + 10 * 20);
  notifier.status("still stalled");
  await manager.heard(/^STATUS=still stalled$/);
  expect(fed()).toBe(before);

  timers.resume();
  await until("it is fed again", () => fed() > before + 5);
  stop();
  agent.close();
});
