import { expect, test } from "bun:test";
import { historyRows } from "../../src/cli/history_text.ts";

const NOW_MS = Date.parse("2026-01-02T12:00:00Z");

function tenure(epoch: number, node: string, incarnation: string, more = {}) {
  const acquired_at = new Date(NOW_MS - 3_600_000 + epoch * 60_000).toISOString();
  return { node, incarnation, address: null, epoch, acquired_at, ...more };
}

test("historyRows() tells what each holder owed for the one before", () => {
  const tenures = [
    tenure(5, "beta", "b1"), // in whose time the coordinator came back with an older past
    tenure(7, "beta", "b1"),
    tenure(4, "beta", "b1"),
    tenure(3, "alpha", "a2", { released_at: "2026-01-02T11:03:30Z", reason: "idle" }),
    tenure(2, "alpha", "a1"),
    tenure(1, "gamma", "c1"),
  ];
  const [, ...rows] = historyRows(tenures, { nowMs: NOW_MS, holdsEpoch: null });
  expect(rows.map((row) => [row[5], row[6]])).toEqual([
    ["not released", "stale epoch"],
    ["not released", "none"],
    ["not released", "none"],
    ["idle", "restart"],
    ["not released", "owed"],
    ["not released", "not known"],
  ]);
  expect(rows[3]!.slice(3, 5)).toEqual(["57m", "30s"]);
  expect(rows[0]![4]).toBe("up to 55m");
});
