/** Servers that forget what they acknowledged: told, and laid on nobody who could not know. */
import { describe, expect, test } from "bun:test";
import { check } from "./checker.ts";
import { fault, plus, setUp } from "./hidden_lies.ts";
import type { Event } from "./history.ts";
import { refused, withOlder, written } from "./lies.ts";

const FORGOTTEN = 15;

/** After b's tenure in epoch 20 the older program is given epoch 15, and writes in it. */
function forgetful(...more: readonly Event[]): Event[] {
  const history = withOlder(40_000).map((event) =>
    "node" in event && event.node === "o" && "epoch" in event
      ? { ...event, epoch: FORGOTTEN }
      : event
  );
  const index = history.filter(({ kind }) => kind === "written").length;
  const line = { id: "o/1#1", node: "o", epoch: FORGOTTEN, seq: 1 };
  return plus(history, written(40_010, index, line), ...more);
}

const KILLED = fault("kill leader", ["s1"], [36_000, 37_000]);

function rulesOf(history: readonly Event[]): string[] {
  return check(history).violations.map(({ rule }) => rule);
}

describe("a tenure in an epoch before the last one", () => {
  test("of an older program after a server was killed is the servers' fault, and told", () => {
    const { violations, regressions } = check(forgetful(...KILLED));
    expect(violations).toEqual([]);
    expect(regressions).toMatchObject([
      { store: "s", node: "o", epoch: FORGOTTEN, before: { node: "b", epoch: 20 } },
    ]);
  });

  test("or in the same epoch, is told, too", () => {
    const history = forgetful(...KILLED).map((event) =>
      "node" in event && event.node === "o" && "epoch" in event ? { ...event, epoch: 20 } : event
    );
    expect(rulesOf(history)).toEqual([]);
    expect(check(history).regressions).toHaveLength(1);
  });

  test("is what agents are right to refuse as stale from then on, and not before", () => {
    const stale = (t: number) => refused(t, "a/1#9", "a", { why: "stale_epoch" });
    expect(rulesOf(forgetful(...KILLED, ...stale(40_500)))).toEqual([]);
    expect(rulesOf(forgetful(...KILLED, ...stale(35_000)))).toContain("refusal");
  });

  test("excuses agents that are shown a holder of long ago, and only then", () => {
    const shown = refused(40_500, "a/1#9", "a", {
      why: "not_holder",
      holder: { node: "b", epoch: 3 },
    });
    expect(rulesOf(forgetful(...KILLED, ...shown))).toEqual([]);
    expect(rulesOf(plus(withOlder(40_000), ...KILLED, ...shown))).toContain("refusal");
  });

  test("is a violation where nothing happened to a server", () => {
    expect(rulesOf(forgetful())).toContain("epoch");
    const other = fault("cut agent from one server", ["a", "s1"], [36_000, 37_000]);
    expect(rulesOf(forgetful(...other))).toContain("epoch");
  });

  test("is a violation of an agent, whose disk and records told it", () => {
    const history = setUp(forgetful(...KILLED), { older: [] });
    expect(rulesOf(history)).toContain("epoch");
    expect(check(history).regressions).toEqual([]);
  });
});
