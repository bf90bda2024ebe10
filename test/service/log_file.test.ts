/** A log that cannot be written: the agent lives, and says later what was lost. */
import { describe, expect, test } from "bun:test";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { openLog } from "../../src/service/log.ts";
import { LogFile } from "../../src/service/log_file.ts";
import { AGENT } from "../support/agent_under_test.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

/** A pipe that neither end of blocks; what is in it goes when it is disposed of. */
class Pipe {
  readonly #dir = tempDir();
  readonly reader: number;
  readonly writer: number;

  constructor() {
    const path = join(this.#dir.path, "pipe");
    expect(Bun.spawnSync(["mkfifo", path]).success).toBe(true);
    this.reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    this.writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  }

  /** What is in it. */
  read(): string {
    const bytes = Buffer.alloc(1 << 20);
    let text = "";
    try {
      for (let n = 1; n > 0;) {
        n = readSync(this.reader, bytes);
        text += bytes.toString("utf8", 0, n);
      }
    } catch {
      // EAGAIN: that was all.
    }
    return text;
  }

  [Symbol.dispose](): void {
    for (const fd of [this.reader, this.writer]) closeSync(fd);
    this.#dir[Symbol.dispose]();
  }
}

describe("LogFile", () => {
  test("write() loses lines that do not fit, begins anew after a cut one, and tells how many", () => {
    using pipe = new Pipe();
    const file = new LogFile(pipe.writer);
    const line = `${"x".repeat(5_000)}\n`;
    for (let i = 0; i < 100; i++) file.write(line);
    expect(file.takeLost()).toBe(0); // not while it cannot be told
    pipe.read();
    file.write("whole\n");
    expect(pipe.read()).toBe("\nwhole\n");
    expect(file.takeLost()).toBeGreaterThan(0);
    expect(file.takeLost()).toBe(0);
    file.write("next\n");
    expect(pipe.read()).toBe("next\n");
  });

  test.each([["/dev/full"], ["/dev/null, read only"]])("write() to %s throws nothing", (where) => {
    const full = where === "/dev/full";
    const fd = openSync(full ? where : "/dev/null", full ? "w" : "r");
    try {
      const file = new LogFile(fd);
      file.write("line\n");
      expect(file.takeLost()).toBe(0);
    } finally {
      closeSync(fd);
    }
  });
});

test("openLog() tells what was lost, in its own format", () => {
  using pipe = new Pipe();
  const log = openLog({ format: "json", level: "info", fd: pipe.writer });
  for (let i = 0; i < 100; i++) log.event("info", "filler", { text: "x".repeat(2_000) });
  const before = pipe.read().split("\n").filter((line) => line.endsWith("}")).length;
  log.event("info", "again");
  // An empty line stands where one was cut.
  const [again, lost] = pipe.read().split("\n").filter((line) => line !== "");
  expect(JSON.parse(again!)).toMatchObject({ event: "again" });
  expect(JSON.parse(lost!))
    .toMatchObject({ level: "warn", event: "log_lost", lines: 100 - before });
});

test.each(["json", "text"])(
  "an agent whose %s log has no room, no reader or no end lives on",
  async (format) => {
    for (const stderr of ["2>/dev/full", "2>&-", "2> >(exec true)"]) {
      using dir = tempDir();
      const socket = join(dir.path, "s");
      const flags = [
        "--socket",
        socket,
        "--state-dir",
        join(dir.path, "state"),
        "--log-format",
        format,
      ];
      const child = Bun.spawn({
        cmd: [
          "bash",
          "-c",
          `exec "$0" "$@" ${stderr}`,
          AGENT,
          "run",
          "--standalone",
          "x",
          ...flags,
        ],
        env: { PATH: process.env.PATH! },
        stdio: ["ignore", "ignore", "ignore"],
      });
      const client = (...args: string[]) =>
        Bun.spawn([AGENT, ...args, "--socket", socket], { stdio: ["ignore", "ignore", "ignore"] })
          .exited;
      try {
        await until(`${stderr}: it serves`, async () => {
          expect([stderr, child.exitCode]).toEqual([stderr, null]);
          return await client("status") === 0;
        });
      } finally {
        child.kill("SIGTERM");
      }
      expect([stderr, await child.exited]).toEqual([stderr, 0]);
    }
  },
);
