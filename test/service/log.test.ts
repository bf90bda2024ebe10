/** The log's lines, for people, machines and the journal; and what becomes of repeats. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { closeSync, fstatSync, openSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isJournal, type Log, openLog } from "../../src/service/log.ts";
import { QuietLog } from "../../src/service/quiet_log.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

/** What is written by `write` to a log opened so. */
function written(
  options: Omit<Parameters<typeof openLog>[0], "fd">,
  write: (log: Log) => void,
): string {
  using dir = tempDir();
  const path = join(dir.path, "log");
  const fd = openSync(path, "w");
  write(openLog({ ...options, fd }));
  closeSync(fd);
  return readFileSync(path, "utf8");
}

const acquired = (log: Log) => log.event("info", "acquired", { store: "a b", epoch: 7 });

describe("openLog()", () => {
  test("writes one JSON object a line", () => {
    const text = written({ format: "json", level: "info" }, (log) => {
      acquired(log);
      log.event("debug", "renewed");
      log.event("error", "problem", { message: "two\nlines" });
    });
    const lines = text.trimEnd().split("\n").map((line) => JSON.parse(line));
    expect(lines).toEqual([
      { level: "info", time: expect.any(String), event: "acquired", store: "a b", epoch: 7 },
      { level: "error", time: expect.any(String), event: "problem", message: "two\nlines" },
    ]);
    expect(Date.parse(lines[0].time)).toBeGreaterThan(0);
  });

  test("writes text for people", () => {
    const text = written({ format: "text", level: "info" }, acquired);
    expect(text).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z info {2}acquired store="a b" epoch=7\n$/);
  });

  test("writes lists and objects for people without quoting what needs none", () => {
    const write = (log: Log) =>
      log.event("info", "started", {
        nats: ["nats://a:1", "nats://b:2"],
        refused: { busy: 2, why: "a b" },
        none: null,
        names: ["a b", "c"],
      });
    expect(written({ format: "text", level: "info" }, write)).toEndWith(
      'started nats=nats://a:1,nats://b:2 refused.busy=2 refused.why="a b" none=null names="a b,c"\n',
    );
  });

  test.each(["json", "text"] as const)(
    "looks at no field of an event that is not logged, as %s",
    (format) => {
      let looks = 0;
      const fields = {
        get store() {
          looks++;
          return "one";
        },
      };
      const write = (level: "debug" | "info") =>
        written({ format, level: "info" }, (log) => log.event(level, "renewed", fields));
      expect([write("debug"), looks]).toEqual(["", 0]);
      expect(write("info")).toContain("one");
      expect(looks).toBeGreaterThan(0);
    },
  );

  test("rounds numbers to three decimals in both formats", () => {
    const write = (log: Log) =>
      log.event("info", "x", { ms: 0.12345678, n: 1_700_000_000_123, deep: [{ ms: 2 / 3 }] });
    expect(written({ format: "text", level: "info" }, write)).toContain(
      "ms=0.123 n=1700000000123 deep=",
    );
    expect(JSON.parse(written({ format: "json", level: "info" }, write)))
      .toMatchObject({ ms: 0.123, n: 1_700_000_000_123, deep: [{ ms: 0.667 }] });
  });

  test("leaves the time to the journal, and tells it the priority", () => {
    const write = (log: Log) => {
      acquired(log);
      log.event("warn", "lost");
      log.event("error", "problem");
      log.event("debug", "renewed");
    };
    const json = written({ format: "json", level: "debug", journal: true }, write);
    expect(json).toBe(
      '<6>{"level":"info","event":"acquired","store":"a b","epoch":7}\n' +
        '<4>{"level":"warn","event":"lost"}\n<3>{"level":"error","event":"problem"}\n' +
        '<7>{"level":"debug","event":"renewed"}\n',
    );
    expect(written({ format: "text", level: "info", journal: true }, write)).toBe(
      '<6>info  acquired store="a b" epoch=7\n<4>warn  lost\n<3>error problem\n',
    );
  });
});

test("isJournal() is about this descriptor, not about the variable alone", () => {
  const { dev, ino } = fstatSync(2);
  expect(isJournal({ JOURNAL_STREAM: `${dev}:${ino}` })).toBe(true);
  expect(isJournal({ JOURNAL_STREAM: `${dev}:${ino + 1}` })).toBe(false);
  expect(isJournal({})).toBe(false);
});

test("jsonLog() rounds times, and leaves epochs as they are", () => {
  const fields = { epoch: 1_796_013_611_275_152, took_ms: 1.23456 };
  const line = written({ format: "json", level: "info", journal: false }, (log) => {
    log.event("info", "acquired", fields);
  });
  expect(JSON.parse(line)).toMatchObject({ epoch: 1_796_013_611_275_152, took_ms: 1.235 });
});

describe("QuietLog", () => {
  function recording() {
    const lines: string[] = [];
    const log: Log = {
      event: (level, event, fields) => lines.push(`${level} ${event} ${JSON.stringify(fields)}`),
    };
    return { lines, log };
  }

  const problem = (quiet: QuietLog, message: string) =>
    quiet.event("error", "problem", { check: "coordinator", message });
  const over = (quiet: QuietLog) => quiet.event("info", "problem_over", { check: "coordinator" });

  test("tells a repeat a few times, then counts it; other stores and debug are told", () => {
    const { lines, log } = recording();
    const quiet = new QuietLog(log);
    for (let i = 0; i < 100; i++) quiet.event("warn", "lost", { store: "one" });
    for (let i = 0; i < 100; i++) quiet.event("warn", "lost", { store: `s${i}` });
    for (let i = 0; i < 100; i++) quiet.event("debug", "renewed", { store: "one" });
    const told = () => lines.filter((line) => line.startsWith("warn") && line.includes('"one"'));
    expect(told().length).toBe(5);
    expect(lines.filter((line) => /warn lost.*"s\d+"/.test(line)).length).toBe(100);
    expect(lines.filter((line) => line.startsWith("debug")).length).toBe(100);
    // What the log says is true as it is.
    quiet.settle();
    expect(told().length).toBe(5);
    quiet.close();
    expect(told().length).toBe(6);
    expect(told().at(-1)).toMatch(/^warn lost \{"store":"one","at":"[^"]+Z","repeated":95\}$/);
  });

  test("tells the first line of each new reason, and not a storm of them", () => {
    const { lines, log } = recording();
    const quiet = new QuietLog(log);
    for (let i = 0; i < 20; i++) problem(quiet, "refused");
    problem(quiet, "the password is wrong");
    expect(lines).toHaveLength(6);
    expect(lines.at(-1)).toContain('"the password is wrong","repeated":15');
    for (let i = 0; i < 1_000; i++) problem(quiet, `a number that was put into it: ${i}`);
    expect(lines.length).toBeLessThan(20);
    quiet.settle();
    expect(lines.at(-1)).toContain("into it: 999");
    quiet.close();
  });

  test("a check and a store of one name are two things", () => {
    const { lines, log } = recording();
    const quiet = new QuietLog(log);
    problem(quiet, "down");
    for (let i = 0; i < 9; i++) quiet.event("info", "acquired", { store: "coordinator" });
    const before = lines.length;
    quiet.settle();
    expect(lines.length).toBe(before);
    over(quiet);
    expect(lines.at(-1)).toBe('info problem_over {"check":"coordinator"}');
    quiet.close();
  });

  test("what it said last of a thing is true once it has settled, and it stays short", () => {
    const what = fc.constantFrom("over", "refused", "wrong password", "settle");
    fc.assert(fc.property(fc.array(what, { maxLength: 300 }), (happens) => {
      const { lines, log } = recording();
      const quiet = new QuietLog(log, { windowMs: 3_600_000, settleMs: 1_000 });
      let truth = "";
      for (const each of [...happens, "settle"]) {
        if (each === "over") over(quiet);
        else if (each !== "settle") problem(quiet, each);
        else {
          quiet.settle();
          expect(lines.at(-1) ?? "").toContain(truth);
        }
        if (each !== "settle") truth = each;
      }
      const settles = happens.filter((each) => each === "settle").length + 1;
      expect(lines.length).toBeLessThanOrEqual(3 * 5 + settles);
      quiet.close();
    }));
  });

  test("begins anew after a while", async () => {
    const { lines, log } = recording();
    const quiet = new QuietLog(log, { windowMs: 20, settleMs: 10 });
    for (let i = 0; i < 6; i++) problem(quiet, "down");
    await until("it told the count", () => lines.some((line) => line.includes("repeated")));
    const before = lines.length;
    problem(quiet, "down");
    expect(lines.length).toBe(before + 1);
    quiet.close();
  });
});

test("every event that the program logs is in the manual's table, and none else", () => {
  const root = join(import.meta.dir, "../..");
  const names = new Set<string>();
  for (const file of readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const source = readFileSync(join(root, "src", file), "utf8");
    const calls = source.matchAll(
      /\.event\(\s*(?:level|"\w+"|[\w.]+ === \d \? "\w+" : "\w+"),\s*([^,)]+)/g,
    );
    for (const [, argument] of calls) {
      for (const [, name] of argument!.matchAll(/"([a-z_]+)"/g)) names.add(name!);
    }
  }
  names.delete("granted"); // compared to, and logged as one of two
  for (const name of ["granted", "refused", "unreachable", "stuck"]) names.add(name);
  const manual = readFileSync(join(root, "docs/operations.md"), "utf8");
  const table = manual.slice(
    manual.indexOf("| event |"),
    manual.indexOf("## ", manual.indexOf("| event |")),
  );
  const rows = [...table.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name!);
  expect(rows.toSorted()).toEqual([...names].sort());
});
