import { describe, expect, test } from "bun:test";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { BootClock, bootClock } from "../../src/client/clock.ts";

describe("BootClock", () => {
  test("tells CLOCK_BOOTTIME, never ahead of it, and behind by no more than it says", () => {
    const clock = bootClock();
    expect(clock.isBootTime).toBe(true);
    for (let i = 0; i < 2_000; i++) {
      const beforeMs = bootTimeMs();
      const toldMs = clock.nowMs();
      const afterMs = bootTimeMs();
      expect(toldMs).toBeLessThanOrEqual(afterMs);
      expect(toldMs).toBeGreaterThan(beforeMs - clock.slackMs - 1);
    }
  });

  test("takes suspended time from the file as soon as the wall clock shows it", () => {
    let suspendedMs = 0;
    const clock = new BootClock(() =>
      Math.floor((performance.now() + 5_000 + suspendedMs) / 10) * 10
    );
    const beforeMs = clock.nowMs();
    const realNow = Date.now;
    try {
      suspendedMs = 60_000;
      Date.now = () => realNow() + suspendedMs;
      expect(clock.nowMs() - beforeMs).toBeGreaterThanOrEqual(60_000 - clock.slackMs);
      expect(clock.nowMs() - beforeMs).toBeLessThan(61_000);
      // A wall clock that is set, in either direction, is no suspension.
      Date.now = () => realNow() - 3_600_000;
      expect(clock.nowMs() - beforeMs).toBeLessThan(61_000);
    } finally {
      Date.now = realNow;
    }
  });

  test("without the file counts what the wall clock runs ahead, and not what it is set back", () => {
    const clock = new BootClock(null);
    expect(clock.isBootTime).toBe(false);
    const beforeMs = clock.nowMs();
    const realNow = Date.now;
    try {
      Date.now = () => realNow() + 60_000;
      expect(clock.nowMs() - beforeMs).toBeGreaterThan(60_000 - clock.slackMs);
      Date.now = () => realNow() - 60_000;
      expect(clock.nowMs() - beforeMs).toBeGreaterThan(60_000 - clock.slackMs);
      expect(clock.nowMs() - beforeMs).toBeLessThan(61_000);
    } finally {
      Date.now = realNow;
    }
  });
});
