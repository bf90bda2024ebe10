import { expect, test } from "bun:test";
import type { Process } from "../../src/cli/guard/sweep.ts";
import { carriersOf, marksOf } from "../../src/daemon/marked.ts";

/** Processes by number: started in that order, each by the one before unless said otherwise. */
function processes(
  ...each: { marks?: string; token?: string; parent?: number; startTime?: number }[]
): Process[] {
  return each.map(({ marks = "", token = null, parent, startTime }, index) => ({
    pid: index + 10,
    parent: parent ?? index + 9,
    group: 10,
    startTime: startTime ?? index,
    marks: marks.split(":").filter((mark) => mark !== ""),
    token: token ?? null,
  }));
}

const marksOfAll = (tokens: readonly string[], all: readonly Process[]) =>
  Object.fromEntries(marksOf(new Set(tokens), all));

test("marksOf() finds the mark of the guard that was given the token", () => {
  const all = processes({}, { marks: "a", token: "A" }, { marks: "b", token: "B" });
  expect(marksOfAll(["A", "C"], all)).toEqual({ A: "a" });
});

test("marksOf() finds the innermost of guards in guards", () => {
  const all = processes({ marks: "a", token: "A" }, { marks: "a:b", token: "B" });
  expect(marksOfAll(["A"], all)).toEqual({ A: "a" });
  expect(marksOfAll(["B"], all)).toEqual({ B: "b" });
});

test("marksOf() finds nothing for a token that was not given to a guard", () => {
  expect(marksOfAll(["A"], processes({ token: "A" }, { marks: "b" }))).toEqual({});
});

test("marksOf() does not take a guard's mark for that of a client within it", () => {
  const command = { marks: "a", token: "A", startTime: 5 };
  const startedByClient = { marks: "a", token: "B", startTime: 6 };
  for (const all of [[command, startedByClient], [startedByClient, command]]) {
    expect(marksOfAll(["B"], processes(...all))).toEqual({});
    expect(marksOfAll(["A", "B"], processes(...all))).toEqual({ A: "a" });
  }
});

test("carriersOf() finds who carries the mark anywhere, and all that those started", () => {
  const all = processes(
    { marks: "a" }, // 10
    { marks: "" }, // 11: its child, its environment cleared
    { marks: "a:b", parent: 1 }, // 12: a guard within, orphaned
    { marks: "" }, // 13
    { marks: "c", parent: 1 }, // 14
    { marks: "", parent: 1 }, // 15
  );
  const found = carriersOf(new Set(["a", "b", "x"]), all);
  expect(Object.fromEntries([...found].map(([mark, pids]) => [mark, [...pids].sort()]))).toEqual({
    a: [10, 11, 12, 13],
    b: [12, 13],
    x: [],
  });
});
