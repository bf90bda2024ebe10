/**
 * The checker of histories, on histories that are doctored: each lie must be found, by its name, and
 * the untouched history must pass.
 */
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { check, summary } from "./checker.ts";
import { type Event, type EventOf, parseHistory } from "./history.ts";
import { drawTimeline } from "./timeline.ts";

/** A run that went well: a handoff after a kill, a verified write, a grace, a guarded command. */
function goodHistory(): Event[] {
  const grant = { kind: "grant", store: "s" } as const;
  return [
    {
      t: 0,
      kind: "setup",
      seed: 1,
      ttlMs: 4_000,
      graceMs: 4_000,
      nodes: ["a", "b"],
      stores: ["s"],
      locks: "own",
      network: "namespaces",
      recoveryMs: 30_000,
      servers: "2.15.1",
    },
    { t: 100, kind: "tenure", store: "s", node: "a", epoch: 10, closed: false },
    ask(900, "a/1#1", "a"),
    { ...grant, t: 1_000, id: "a/1#1", node: "a", epoch: 10, deadlineMs: 4_900 },
    { t: 1_100, kind: "extended", id: "a/1#1", by: "verify", deadlineMs: 5_020 },
    written(1_200, 0, { id: "a/1#1", node: "a", epoch: 10, seq: 1 }),
    ask(1_300, "b/1#1", "b"),
    {
      t: 1_310,
      kind: "refused",
      id: "b/1#1",
      node: "b",
      store: "s",
      why: "not_holder",
      holder: { node: "a", epoch: 10 },
    },
    { t: 1_400, kind: "release", id: "a/1#1" },
    ask(1_500, "a/1#2", "a"),
    { ...grant, t: 1_600, id: "a/1#2", node: "a", epoch: 10, deadlineMs: 5_400 },
    written(1_700, 1, { id: "a/1#2", node: "a", epoch: 10, seq: 1 }),
    { t: 2_000, kind: "fault", fault: 1, name: "kill agent", targets: ["a"] },
    { t: 2_010, kind: "lost", id: "a/1#2", why: "closed" },
    ask(2_500, "a/1#3", "a"),
    { t: 2_501, kind: "refused", id: "a/1#3", node: "a", store: "s", why: "gone" },
    { t: 3_000, kind: "healed", fault: 1 },
    { t: 3_000, kind: "calm" },
    ask(8_000, "b/1#2", "b"),
    {
      t: 8_010,
      kind: "refused",
      id: "b/1#2",
      node: "b",
      store: "s",
      why: "grace",
      retryAfterMs: 2_000,
    },
    { t: 8_020, kind: "tenure", store: "s", node: "b", epoch: 20, closed: false },
    ask(9_000, "b/1#3", "b"),
    { ...grant, t: 10_100, id: "b/1#3", node: "b", epoch: 20, deadlineMs: 14_000 },
    written(10_200, 2, { id: "b/1#3", node: "b", epoch: 20, seq: 1 }),
    { t: 10_300, kind: "release", id: "b/1#3" },
    ask(10_400, "b/2#1", "b"),
    { ...grant, t: 10_500, id: "b/2#1", node: "b", epoch: 20, deadlineMs: null },
    written(10_600, 3, { id: "b/2#1", node: "b", epoch: 20, seq: 1 }),
    ask(10_650, "b/1#4", "b"),
    { t: 10_660, kind: "refused", id: "b/1#4", node: "b", store: "s", why: "busy" },
    { t: 10_700, kind: "exit", id: "b/2#1", status: 0 },
    { t: 60_000, kind: "disturbed" },
    { t: 60_000, kind: "end" },
  ];
}

function ask(t: number, id: string, node: string): Event {
  const rest = { store: "s", via: "socket", waitMs: 0, waitLease: false } as const;
  return { t, kind: "ask", id, node, ...rest };
}

function written(
  t: number,
  index: number,
  line: { id: string; node: string; epoch: number; seq: number },
): Event {
  return { t, kind: "written", store: "s", index, doneMs: t + 1, ...line };
}

/** The history with some events changed, dropped (null) or added, sorted again. */
function doctored(change: (event: Event) => Event | Event[] | null): Event[] {
  return goodHistory().flatMap((event) => change(event) ?? []).sort((a, b) => a.t - b.t);
}

/** Changes the event of one kind and id. */
function alter<K extends Event["kind"]>(
  kind: K,
  id: string,
  change: Partial<EventOf<K>>,
): Event[] {
  let found = 0;
  const history = doctored((event) => {
    if (event.kind !== kind || !("id" in event) || event.id !== id) return event;
    found++;
    return { ...event, ...change } as Event;
  });
  expect(found).toBe(1); // A lie that was not told proves nothing.
  return history;
}

function rules(history: Event[]): string[] {
  return [...new Set(check(history).violations.map(({ rule }) => rule))];
}

describe("check()", () => {
  test("finds nothing in a good history", () => {
    const verdict = check(goodHistory());
    expect(verdict.violations).toEqual([]);
    expect(summary(verdict)).toBe("grants=4 overlaps=0 stuck=0");
    expect(verdict.recoveriesMs).toEqual([7_100]);
    expect(verdict.refusals).toMatchObject({ not_holder: 1, grace: 1, busy: 1, gone: 1 });
  });

  const LIES: [string, string, () => Event[]][] = [
    [
      "a second node is granted before the first one's deadline",
      "overlap",
      () =>
        doctored((event) => {
          // The loss was never noticed: the first client may write until its deadline.
          if (event.kind === "lost") return null;
          return event.kind === "grant" && event.id === "b/1#3" ? { ...event, t: 5_000 } : event;
        }),
    ],
    [
      "a second client of the same node is granted before the release",
      "overlap",
      () => alter("grant", "a/1#2", { t: 1_390 }),
    ],
    ["a guarded command writes on into the next grant", "overlap", () =>
      [
        ...goodHistory(),
        ask(11_000, "b/1#5", "b"),
        {
          t: 11_010,
          kind: "grant",
          id: "b/1#5",
          node: "b",
          store: "s",
          epoch: 20,
          deadlineMs: 15_000,
        },
        written(11_500, 4, { id: "b/2#1", node: "b", epoch: 20, seq: 2 }),
      ].sort((a, b) => a.t - b.t) as Event[]],
    ["an epoch goes back in a log", "epoch", () => alter("written", "b/2#1", { epoch: 10 })],
    [
      "lines of two epochs are swapped in a log",
      "epoch",
      () =>
        doctored((event) =>
          event.kind === "written" && event.index > 0 && event.index < 3
            ? { ...event, index: 3 - event.index }
            : event
        ),
    ],
    [
      "a line was written without any grant",
      "write",
      () => doctored((event) => event.kind === "grant" && event.id === "b/1#3" ? null : event),
    ],
    [
      "a line carries another epoch than its grant",
      "write",
      () => alter("written", "b/1#3", { epoch: 21 }),
    ],
    [
      "a line was written after the deadline",
      "write",
      () => alter("written", "a/1#1", { t: 5_010, doneMs: 5_030 }),
    ],
    [
      "a line was written after the release",
      "write",
      () => alter("written", "a/1#1", { t: 1_401, doneMs: 1_402 }),
    ],
    ["a write began before the deadline and ended after it", "write", () =>
      doctored((event) => {
        if (event.kind === "release" && event.id === "b/1#3") return null;
        if ("id" in event && event.id.startsWith("b/2")) return null;
        return event.kind === "written" && event.id === "b/1#3"
          ? { ...event, t: 13_999, doneMs: 14_001 }
          : event;
      })],
    ["a sequence is there twice", "write", () =>
      [
        ...goodHistory(),
        written(10_601, 4, { id: "b/2#1", node: "b", epoch: 20, seq: 1 }),
      ].sort((a, b) => a.t - b.t) as Event[]],
    [
      "a node is granted without a grace after one that did not let go",
      "grace",
      () => alter("grant", "b/1#3", { t: 5_400 }),
    ],
    [
      "a store is not granted again in time",
      "stuck",
      () => doctored((event) => "id" in event && event.t > 9_000 ? null : event),
    ],
    [
      "a request is never answered",
      "stuck",
      () => doctored((event) => event.kind === "refused" && event.id === "b/1#2" ? null : event),
    ],
    ["unavailable is said when nothing is wrong", "refusal", () => [
      ...goodHistory(),
      ask(50_000, "b/1#9", "b"),
      { t: 50_100, kind: "refused", id: "b/1#9", node: "b", store: "s", why: "unavailable" },
    ]],
    [
      "draining is said by a node that nobody stopped",
      "refusal",
      () => alter("refused", "b/1#2", { why: "draining" }),
    ],
    ["busy is said where nobody else is", "refusal", () => [
      ...goodHistory(),
      ask(50_000, "b/1#9", "b"),
      { t: 50_100, kind: "refused", id: "b/1#9", node: "b", store: "s", why: "busy" },
    ]],
    [
      "a holder is named that never was",
      "refusal",
      () => alter("refused", "b/1#1", { holder: { node: "c", epoch: null } }),
    ],
    [
      "a holder is named with an epoch that nobody had",
      "refusal",
      () => alter("refused", "b/1#1", { holder: { node: "a", epoch: 11 } }),
    ],
    [
      "a node names itself as the other holder",
      "refusal",
      () => alter("refused", "b/1#1", { holder: { node: "b", epoch: 20 } }),
    ],
    ["a holder is named long after it was displaced", "refusal", () => [
      ...goodHistory(),
      ask(50_000, "a/1#9", "a"),
      {
        t: 50_100,
        kind: "refused",
        id: "a/1#9",
        node: "a",
        store: "s",
        why: "not_holder",
        holder: { node: "a", epoch: 10 },
      },
    ]],
    [
      "a grant comes before the grace that was named is over",
      "refusal",
      () => alter("refused", "b/1#2", { retryAfterMs: 3_000 }),
    ],
    [
      "a grace is longer than it may be",
      "refusal",
      () => alter("refused", "b/1#2", { retryAfterMs: 4_001 }),
    ],
    [
      "misconfigured is said and nothing is",
      "refusal",
      () => alter("refused", "b/1#2", { why: "misconfigured" }),
    ],
    ["a lease is lost when nothing is wrong", "refusal", () => [
      ...goodHistory(),
      {
        t: 50_000,
        kind: "grant",
        id: "b/1#9",
        node: "b",
        store: "s",
        epoch: 20,
        deadlineMs: 53_900,
      },
      { t: 50_100, kind: "lost", id: "b/1#9", why: "unavailable" },
    ]],
    [
      "a token is not known that was just granted",
      "refusal",
      () => doctored((event) => event.kind === "lost" ? { ...event, why: "no_token" } : event),
    ],
    ["a tenure goes on after it was lost", "refusal", () =>
      doctored((event) => {
        if (event.kind === "lost") return { ...event, why: "unavailable" };
        if (event.kind === "grant" && event.epoch === 20) return { ...event, node: "a", epoch: 10 };
        return event.kind === "written" ? { ...event, node: "a", epoch: 10 } : event;
      })],
  ];

  test.each(LIES)("finds that %s", (_lie, rule, history) => {
    expect(rules(history())).toContain(rule);
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
      const bad = await run(alter("grant", "a/1#2", { t: 1_390 }));
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
