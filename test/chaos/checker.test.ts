/**
 * The checker of histories, on histories that are doctored: each lie must be found, by its name, and
 * the untouched history must pass.
 */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { tempDir } from "../support/temp_dir.ts";
import { check, summary, type Violation } from "./checker.ts";
import type { Event } from "./history.ts";
import { HARMLESS } from "./harmless.ts";
import { HIDDEN_LIES, TRUTHS } from "./hidden_lies.ts";
import { LATER_LIES, LATER_TRUTHS } from "./later_lies.ts";
import { alter, doctored, goodHistory, LIES } from "./lies.ts";
import { fullHistory, mutationsOf } from "./mutations.ts";
import { HistoryError, parseHistory } from "./reading.ts";
import { EVENT_KINDS } from "./shapes.ts";
import { drawTimeline } from "./timeline.ts";

function byTime(history: Event[]): Event[] {
  return history.sort((a, b) => a.t - b.t);
}

/** As it is when it was saved, and read again. */
function parsed(history: readonly Event[]): Event[] {
  return parseHistory(history.map((event) => JSON.stringify(event)).join("\n") + "\n");
}

/** Whether something is found in a history, or it is found to be none. */
function isFound(history: readonly Event[]): boolean {
  try {
    return check(parsed(history)).violations.length > 0;
  } catch (error) {
    if (error instanceof HistoryError) return true;
    throw error;
  }
}

describe("check()", () => {
  test("finds nothing in a good history", () => {
    const verdict = check(goodHistory());
    expect(verdict.violations).toEqual([]);
    expect(summary(verdict)).toBe("grants=4 overlaps=0 stuck=0");
    expect(verdict.recoveriesMs).toEqual([7_100]);
    expect(verdict.refusals).toMatchObject({ not_holder: 1, grace: 1, busy: 1, gone: 1 });
  });

  test.each([...LIES, ...HIDDEN_LIES, ...LATER_LIES])(
    "finds that %s",
    (_lie, rule, words, history) => {
      const { violations } = check(byTime(history()));
      expect(violations.filter((found) => found.rule === rule).map(({ message }) => message))
        .toContainEqual(expect.stringMatching(words));
    },
  );

  test.each([...TRUTHS, ...LATER_TRUTHS])("lets pass that %s", (_truth, history) => {
    expect(check(history()).violations).toEqual([]);
  });

  test("finds every change of a single field, but for those that are harmless", () => {
    expect(check(parsed(fullHistory())).violations).toEqual([]);
    const kinds = new Set(fullHistory().map(({ kind }) => kind));
    expect([...kinds].sort()).toEqual(EVENT_KINDS.filter((kind) => kind !== "wrote").sort());
    const missed = mutationsOf(fullHistory()).filter(({ history }) => !isFound(history));
    const nameOf = (name: string) => name in HARMLESS ? name : name.replace(/ is .*$/, " is");
    const strange = missed.filter(({ name }) => !(nameOf(name) in HARMLESS));
    expect(strange.map(({ name, event }) => `${name}: ${JSON.stringify(event)}`)).toEqual([]);
    // And none is called harmless that is found.
    expect([...new Set(missed.map(({ name }) => nameOf(name)))].sort())
      .toEqual(Object.keys(HARMLESS).sort());
  });

  test("refuses a history whose order is lost, and one of two runs", () => {
    const history = goodHistory();
    expect(() => check(history.toReversed())).toThrow(HistoryError);
    expect(() => check(history.with(5, history[6]!).with(6, history[5]!))).toThrow("event 7 is of");
    expect(() => check([...history, { ...history[0]!, t: 70_000 } as Event])).toThrow("one setup");
    expect(() => check(history.slice(1))).toThrow("no setup");
    expect(() => check([{ t: 0, kind: "calm" }, ...history])).toThrow("does not begin");
  });

  test("a killed writer's grant ends with it, and no sooner than its last write", () => {
    const killed = doctored((event) => {
      if (event.kind === "lost") return { t: 2_010, kind: "gone", prefix: "a/" };
      return "id" in event && event.id === "a/1#3" ? null : event;
    });
    expect(check(killed).violations).toEqual([]);
    const late = killed.map((event) =>
      event.kind === "written" && event.id === "a/1#2"
        ? { ...event, t: 10_150, doneMs: 10_151 }
        : event
    ).sort((a, b) => a.t - b.t);
    expect(check(late).overlaps).toBeGreaterThan(0);
  });
});

describe("parseHistory()", () => {
  const text = goodHistory().map((event) => JSON.stringify(event)).join("\n") + "\n";

  test("leaves out a last line that was cut short, and no other", () => {
    expect(parseHistory(text)).toEqual(goodHistory());
    expect(parseHistory(text + '{"t":1,"ki')).toEqual(goodHistory());
    expect(() => parseHistory('{"t":\n' + text)).toThrow("line 1 ");
  });

  test.each([
    "null",
    "[]",
    "1",
    '{"kind":"calm"}',
    '{"t":1,"kind":"toString"}',
    '{"t":1,"event":"acquired","level":"info"}',
    '{"t":1,"kind":"ask","id":"a","node":"n","store":null,"waitMs":0}',
  ])("refuses what is no event: %s", (line) => {
    expect(() => parseHistory(text + line + "\n")).toThrow(HistoryError);
  });
});

describe("check.ts", () => {
  const program = new URL("./check.ts", import.meta.url).pathname;
  let directory: ReturnType<typeof tempDir>;
  beforeEach(() => (directory = tempDir()));
  afterEach(() => directory[Symbol.dispose]());

  function file(text: string): string {
    const path = join(directory.path, "history.jsonl");
    writeFileSync(path, text);
    return path;
  }

  function run(...args: string[]) {
    const { exitCode, stdout, stderr } = Bun.spawnSync([process.execPath, program, ...args]);
    const lines = stdout.toString().trim().split("\n");
    return { status: exitCode, lines, stderr: stderr.toString() };
  }

  test("ends with the summary and status 0, or 1 when something is wrong; draws it", async () => {
    const judge = async (history: Event[]) => {
      const path = file(history.map((event) => JSON.stringify(event)).join("\n") + "\n");
      const svg = join(directory.path, "timeline.svg");
      return { ...run(path, "--timeline", svg), svg: await Bun.file(svg).text() };
    };
    const good = await judge(goodHistory());
    expect(good.status).toBe(0);
    expect(good.lines.at(-1)).toBe("grants=4 overlaps=0 stuck=0");
    expect(good.svg).toContain("kill agent");
    const bad = await judge(alter("release", "a/1#1", { t: 1_650 }));
    expect(bad.status).toBe(1);
    expect(bad.lines[0]).toStartWith("overlap");
    expect(bad.lines.at(-1)).toBe("grants=4 overlaps=1 stuck=0");
    expect(bad.svg).toContain('stroke="red"');
  });

  test("tells in a line what is no history, with status 65", () => {
    const { kind: _, ...nothing } = goodHistory()[0]!;
    for (
      const [text, words] of [
        ["", "there is no setup line in it"],
        ["a log\nof something\n", "line 1 is no line of a history: a log"],
        [JSON.stringify(nothing) + "\n", "line 1 is no line of a history"],
        ['{"t":1,"kind":"calm"}\n', "there is no setup line in it"],
        ['{"t":1,"kind":"calm"}\n[2]\n', "line 2 is no line of a history: [2]"],
      ] as const
    ) {
      const path = file(text);
      const { status, stderr } = run(path);
      expect(stderr).toStartWith(`chaos: Cannot check ${path}: ${words}`);
      expect(stderr.trim()).not.toContain("\n");
      expect(status).toBe(65);
    }
    for (const path of [join(directory.path, "nothing"), directory.path]) {
      const { status, stderr } = run(path);
      expect(stderr).toMatch(/^chaos: Cannot read the history: .*\n$/);
      expect(status).toBe(65);
    }
  });

  test("tells its usage with status 64, and a timeline that it cannot draw with 73", () => {
    const path = file(goodHistory().map((event) => JSON.stringify(event)).join("\n") + "\n");
    for (const args of [[], ["--timeline"], [path, "--timeline"], [path, "more"]]) {
      const { status, stderr } = run(...args);
      expect([status, stderr]).toEqual([64, expect.stringMatching(/^chaos: usage: .*\n$/)]);
    }
    const { status, stderr } = run(path, "--timeline", join(directory.path, "no/where.svg"));
    expect([status, stderr]).toEqual([73, expect.stringMatching(/^chaos: Cannot draw .*\n$/)]);
  });
});

describe("drawTimeline()", () => {
  test("has a lane for each node, a bar for each grant, a band for each fault", () => {
    const history = goodHistory();
    const svg = drawTimeline(history, check(history));
    expect(svg.match(/font-weight="bold"/g)).toHaveLength(2);
    expect(svg).toContain("a/1#1: s, epoch 10, 1 writes");
    expect(svg.match(/fill="#4477aa"><title>/g)).toHaveLength(4);
    expect(svg.match(/#ee667755/g)).toHaveLength(1);
  });

  test("stays readable when very much is wrong, and tells how much", () => {
    const history = goodHistory();
    const violations = Array.from({ length: 5_000 }, (_, i): Violation => ({
      rule: i % 2 === 0 ? "overlap" : "refusal",
      t: i * 12,
      message: `violation ${i}`,
    }));
    const svg = drawTimeline(history, { ...check(history), violations });
    const lines = [...svg.matchAll(/<line x1="([\d.]+)"[^>]*stroke="red"/g)].map(([, x]) =>
      Number(x)
    );
    expect(lines.length).toBeLessThan(40);
    for (const [i, x] of lines.slice(1).entries()) expect(x - lines[i]!).toBeGreaterThanOrEqual(80);
    const more = [...svg.matchAll(/fill="red">\w+ \+(\d+)</g)].map(([, count]) => Number(count));
    expect(more.reduce((a, b) => a + b, 0) + lines.length).toBe(5_000);
    expect(svg).toContain("5000 violations");
    expect(svg.length).toBeLessThan(100_000);
  });
});
