import { expect, test } from "bun:test";
import { Health } from "../../src/agent/health.ts";
import type { Observer } from "../../src/agent/types.ts";
import type { LeaseNote } from "../../src/lease/state.ts";

const RECORDED = { recorded: true, rival: null };
const STUCK: LeaseNote = { type: "stuck", forMs: 60_000 };
const RIVAL: LeaseNote = { type: "foreign", duplicate: true, renews: true };
const STALE: LeaseNote = { type: "stale", epoch: 1, recorded: 2 };
const SILENT: LeaseNote = { type: "unreachable", reason: "no answer" };

function health(): Health {
  const health = new Health({ problem: () => {} } as unknown as Observer);
  health.report("coordinator", null);
  return health;
}

test("forget() is the end of what was seen in a store, but that its epoch went back", () => {
  const all = health();
  for (const note of [STUCK, RIVAL, STUCK, STALE]) all.note("one", note, RECORDED);
  const failing = () => all.checks({}).map(({ name }) => name).sort();
  expect(failing()).toEqual(["duplicate_node", "epoch", "stuck"]);
  all.forget("one");
  expect(failing()).toEqual(["epoch"]);
});

test("note() tells of a store that is not served at its second request without an answer", () => {
  const all = health();
  all.note("one", SILENT, RECORDED);
  expect(all.fails("writes")).toBe(false);
  all.note("one", SILENT, RECORDED);
  expect(all.fails("writes")).toBe(true);
});
