/**
 * The checker of histories, on histories that are doctored: each lie must be found, by its name, and
 * the untouched history must pass.
 */
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { check, summary } from "./checker.ts";
import { type Event, parseHistory } from "./history.ts";
import { HIDDEN_LIES, TRUTHS } from "./hidden_lies.ts";
import { alter, doctored, goodHistory, LIES } from "./lies.ts";
import { drawTimeline } from "./timeline.ts";

function byTime(history: Event[]): Event[] {
  return history.sort((a, b) => a.t - b.t);
}

describe("check()", () => {
  test("finds nothing in a good history", () => {
    const verdict = check(goodHistory());
    expect(verdict.violations).toEqual([]);
    expect(summary(verdict)).toBe("grants=4 overlaps=0 stuck=0");
    expect(verdict.recoveriesMs).toEqual([7_100]);
    expect(verdict.refusals).toMatchObject({ not_holder: 1, grace: 1, busy: 1, gone: 1 });
  });

  test.each([...LIES, ...HIDDEN_LIES])("finds that %s", (_lie, rule, words, history) => {
    const { violations } = check(byTime(history()));
    expect(violations.filter((found) => found.rule === rule).map(({ message }) => message))
      .toContainEqual(expect.stringMatching(words));
  });

  test.each(TRUTHS)("lets pass that %s", (_truth, history) => {
    expect(check(history()).violations).toEqual([]);
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
  test("leaves out a last line that was cut short, and no other", () => {
    const text = goodHistory().map((event) => JSON.stringify(event)).join("\n") + "\n";
    expect(parseHistory(text)).toEqual(goodHistory());
    expect(parseHistory(text + '{"t":1,"ki')).toEqual(goodHistory());
    expect(() => parseHistory('{"t":\n' + text)).toThrow("line 1");
  });
});

describe("check.ts", () => {
  const program = new URL("./check.ts", import.meta.url).pathname;

  test("ends with the summary and status 0, or 1 when something is wrong; draws it", async () => {
    const dir = mkdtempSync(join(tmpdir(), "history-"));
    try {
      const run = async (history: Event[]) => {
        const path = join(dir, "history.jsonl");
        writeFileSync(path, history.map((event) => JSON.stringify(event)).join("\n") + "\n");
        const svg = join(dir, "timeline.svg");
        const child = Bun.spawn([process.execPath, program, path, "--timeline", svg], {
          stdout: "pipe",
        });
        const lines = (await new Response(child.stdout).text()).trim().split("\n");
        return { status: await child.exited, lines, svg: await Bun.file(svg).text() };
      };
      const good = await run(goodHistory());
      expect(good.status).toBe(0);
      expect(good.lines.at(-1)).toBe("grants=4 overlaps=0 stuck=0");
      expect(good.svg).toContain("kill agent");
      const bad = await run(alter("grant", "a/1#2", { t: 1_390, deadlineMs: 5_300 }));
      expect(bad.status).toBe(1);
      expect(bad.lines[0]).toStartWith("overlap");
      expect(bad.lines.at(-1)).toBe("grants=4 overlaps=1 stuck=0");
      expect(bad.svg).toContain('stroke="red"');
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
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
});
