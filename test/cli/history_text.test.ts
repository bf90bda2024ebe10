import { expect, test } from "bun:test";
import { historyRows } from "../../src/cli/history_text.ts";

const NOW_MS = Date.parse("2026-01-02T12:00:00Z");

function tenure(epoch: number, node: string, incarnation: string, more = {}) {
  const acquired_at = new Date(NOW_MS - 3_600_000 + epoch * 60_000).toISOString();
  return { node, incarnation, address: null, epoch, acquired_at, ...more };
}

function endsAndGraces(tenures: ReturnType<typeof tenure>[]): (string | undefined)[][] {
  const [, ...rows] = historyRows(tenures, { nowMs: NOW_MS, holdsEpoch: null });
  return rows.map((row) => [row[5], row[6]]);
}

const RELEASED = { released_at: "2026-01-02T11:03:30Z", reason: "idle" };

test("historyRows() tells what each holder owed for the one before", () => {
  const tenures = [
    tenure(5, "beta", "b1"), // in whose time the coordinator came back with an older past
    tenure(7, "beta", "b1"),
    tenure(4, "beta", "b1"),
    tenure(3, "alpha", "a2", RELEASED),
    tenure(2, "alpha", "a1"),
    tenure(1, "gamma", "c1"),
  ];
  expect(endsAndGraces(tenures)).toEqual([
    ["not released", "stale epoch"],
    ["not released", "again"],
    ["not released", "none"],
    ["idle", "restart"],
    ["not released", "owed"],
    ["not released", "not known"],
  ]);
  const [, ...rows] = historyRows(tenures, { nowMs: NOW_MS, holdsEpoch: null });
  expect(rows[3]!.slice(3, 5)).toEqual(["57m", "30s"]);
  expect(rows[0]![4]).toBe("up to 55m");
});

test.each([
  ["the same incarnation", "alpha", "a1"],
  ["another incarnation of the node", "alpha", "a2"],
  ["another node", "beta", "b1"],
])("historyRows() says none only when the tenure before was released, by %s", (_, node, run) => {
  const after = tenure(2, node, run);
  expect(endsAndGraces([after, tenure(1, "alpha", "a1", RELEASED)])[0]![1]).toBe("none");
  expect(endsAndGraces([after, tenure(1, "alpha", "a1")])[0]![1]).not.toBe("none");
});
