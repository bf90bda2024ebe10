/**
 * The time for deadlines, suspended time included, on runtimes that offer no such clock: read from
 * `/proc/uptime`, which is CLOCK_BOOTTIME to 10 ms, and carried on between readings by the
 * monotonic clock.
 *
 * Where that file cannot be read (another system, a runtime that does not permit it) whatever the
 * wall clock runs ahead of the monotonic one counts as suspended time. A wall clock that is set
 * ahead then ends deadlines too early, never too late.
 * @module
 */
import { Buffer } from "node:buffer";
import { openSync, readSync } from "node:fs";

/** How long a reading is carried on; finer than this the file is not. */
const READ_EVERY_MS = 10;
/** A wall clock may run ahead so far, by slewing and rounding, before it counts as suspended time. */
const WALL_SLACK_MS = 20;
/** Far more than two numbers. */
const UPTIME_BYTES = 64;

/** A clock that runs on in suspend. */
export class BootClock {
  /** How far behind the true time it may be. */
  readonly slackMs: number;
  /** Whether it is CLOCK_BOOTTIME itself, so that the agent's deadlines can be compared with it. */
  readonly isBootTime: boolean;
  readonly #readUptimeMs: (() => number) | null;
  #offsetMs = 0;
  #readAtMs = -Infinity;
  #wallMs = Date.now();

  constructor(readUptimeMs: (() => number) | null = uptimeReader()) {
    this.#readUptimeMs = readUptimeMs;
    this.isBootTime = readUptimeMs !== null;
    this.slackMs = this.isBootTime ? READ_EVERY_MS : WALL_SLACK_MS;
    const uptimeMs = readUptimeMs?.() ?? 0;
    this.#readAtMs = performance.now();
    this.#offsetMs = uptimeMs - this.#readAtMs;
  }

  /** The time in ms, since boot if {@linkcode isBootTime}, else since some moment. */
  nowMs(): number {
    // The wall clock first: suspended in between, it seems to be behind rather than ahead.
    const wallMs = Date.now() - this.#wallMs;
    const monotonicMs = performance.now();
    // The wall clock shows a suspension right after the last reading.
    const fresh = monotonicMs - this.#readAtMs < READ_EVERY_MS && wallMs >= 0 &&
      wallMs <= READ_EVERY_MS + WALL_SLACK_MS;
    return (fresh ? monotonicMs : this.#read(monotonicMs, wallMs)) + this.#offsetMs;
  }

  /** Reads the clock that runs in suspend, and returns the monotonic time. */
  #read(beforeMs: number, wallMs: number): number {
    const uptimeMs = this.#readUptimeMs?.();
    // After the file: then the sum is never ahead of the truth, however long reading took.
    const monotonicMs = performance.now();
    if (uptimeMs !== undefined) {
      // Both clocks run at one rate outside of suspend, and the file rounds down: of all
      // readings the greatest difference is nearest to the truth.
      this.#offsetMs = Math.max(this.#offsetMs, uptimeMs - monotonicMs);
    } else {
      const aheadMs = wallMs - (beforeMs - this.#readAtMs);
      if (aheadMs > WALL_SLACK_MS) this.#offsetMs += aheadMs;
    }
    this.#readAtMs = monotonicMs;
    this.#wallMs += wallMs;
    return monotonicMs;
  }
}

/** Reads `/proc/uptime` in ms; null where it cannot be read. */
function uptimeReader(): (() => number) | null {
  try {
    // Kept open: reading takes 2 µs, opening ten times that.
    const fd = openSync("/proc/uptime", "r");
    const buffer = Buffer.alloc(UPTIME_BYTES);
    const read = () =>
      parseFloat(buffer.toString("latin1", 0, readSync(fd, buffer, 0, UPTIME_BYTES, 0))) * 1_000;
    return Number.isFinite(read()) ? read : null;
  } catch {
    return null;
  }
}

let shared: BootClock | undefined;

/** The clock of this process. */
export function bootClock(): BootClock {
  shared ??= new BootClock();
  return shared;
}
