import { expect, test } from "bun:test";
import { carriersOf, marksOf } from "../../src/daemon/marked.ts";
import { signOf } from "../../src/cli/guard/sweep.ts";
import type { Seen } from "../../src/daemon/seen.ts";

/** The user of all grants here, and the process that they were given to. */
const UID = 1_000;
const CLIENT = 5;

interface Made {
  /** `a=A:b`: the mark `a`, signed with the token `A`, and within that `b`, which is not signed. */
  marks?: string;
  token?: string;
  parent?: number;
  startTime?: number;
  uid?: number;
  groups?: Seen["groups"];
}

/** Processes by number: started in that order, each by the one before unless said otherwise. */
function processes(...each: Made[]): Seen[] {
  return each.map(({ marks = "", token = null, parent, startTime, uid, groups }, index) => ({
    ...marksIn(marks),
    pid: index + 10,
    parent: parent ?? index + 9,
    group: 10,
    startTime: startTime ?? index,
    token: token ?? null,
    uid: uid ?? UID,
    groups: groups ?? [],
  }));
}

function marksIn(text: string): Pick<Seen, "marks" | "signs"> {
  const each = text === "" ? [] : text.split(":").map((entry) => entry.split("="));
  return {
    marks: each.map(([mark]) => mark!),
    signs: each.map(([_, token]) => token === undefined ? "" : signOf(token)),
  };
}

const marksOfAll = (tokens: readonly string[], all: readonly Seen[]) =>
  Object.fromEntries(marksOf(tokens.map((token) => ({ token, uid: UID, pid: CLIENT })), all));

const carriersOfAll = (marks: readonly string[], all: readonly Seen[]) => {
  const found = carriersOf(marks.map((mark) => ({ mark, uid: UID, token: `token ${mark}` })), all);
  return Object.fromEntries(
    [...found].map(([key, { own, others }]) => [
      key.slice(key.indexOf("/") + 1),
      { own: [...own].sort(), others: [...others].sort() },
    ]),
  );
};

test("marksOf() finds the mark of the guard that was given the token", () => {
  const all = processes({}, { marks: "a=A", token: "A" }, { marks: "b=B", token: "B" });
  expect(marksOfAll(["A", "C"], all)).toEqual({ A: "a" });
});

test("marksOf() tells guards in guards apart, also by one process", () => {
  const all = processes({ marks: "a=A:b=B", token: "B" });
  expect(marksOfAll(["A"], all)).toEqual({ A: "a" });
  expect(marksOfAll(["B"], all)).toEqual({ B: "b" });
});

test("marksOf() finds nothing for a token that was not given to a guard", () => {
  expect(marksOfAll(["A"], processes({ token: "A" }, { marks: "b" }))).toEqual({});
});

test("marksOf() does not take a guard's mark for that of a client within it, whatever the command shows", () => {
  const startedByClient = { marks: "a=A", token: "B" };
  const commands: Made[] = [
    { marks: "a=A", token: "A" },
    { marks: "a=A" }, // unset by itself
    { groups: [{ maker: 4, mark: "a" }] }, // written over, as by setproctitle
  ];
  for (const command of commands) {
    for (const all of [[command, startedByClient], [startedByClient, command]]) {
      expect(marksOfAll(["B"], processes(...all))).toEqual({});
      expect(marksOfAll(["A", "B"], processes(...all))).toEqual({ A: "a" });
    }
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
  expect(carriersOfAll(["a", "b", "x"], all)).toEqual({
    a: { own: [10, 11, 12, 13], others: [] },
    b: { own: [12, 13], others: [] },
    x: { own: [], others: [] },
  });
});

test("marksOf() neither believes another user a mark nor lets him hide whose it is", () => {
  const forged = { marks: "a=B", token: "B", uid: UID + 1 };
  const all = processes(forged, { marks: "a=A", token: "A" }, { marks: "b=A", token: "A", uid: 0 });
  expect(marksOfAll(["A", "B"], all)).toEqual({ A: "a" });
});

test("marksOf() finds by its cgroup what a command left that has ended", () => {
  const groups = [{ maker: 4, mark: "outer" }, { maker: CLIENT, mark: "a" }];
  expect(marksOfAll(["A"], processes({ groups }))).toEqual({ A: "a" });
  expect(marksOfAll(["A"], processes({ groups, uid: 0 }))).toEqual({});
});

test("carriersOf() finds who cleared its environment by its cgroup", () => {
  const groups = [{ maker: CLIENT, mark: "a" }];
  const all = processes({ groups, parent: 1 }, { parent: 1 }, { groups, parent: 1, uid: 0 });
  expect(carriersOfAll(["a"], all)).toEqual({ a: { own: [10], others: [] } });
});

test("carriersOf() tells those of other users apart, and counts none that only claims the mark", () => {
  const all = processes(
    { marks: "a" }, // 10
    { uid: 0 }, // 11: started by it, by sudo
    {}, // 12: and started by that
    { marks: "a", uid: 0, parent: 1 }, // 13: another's command of that mark
    { marks: "a", uid: 0, parent: 1, token: "token a" }, // 14: knows the token, so it is of this one
  );
  expect(carriersOfAll(["a"], all)).toEqual({ a: { own: [10, 12], others: [11, 14] } });
});
