/** How the core's requests are carried out. */
import { expect, test } from "bun:test";
import { World } from "../../src/agent/effects.ts";
import { lockRefusalOf } from "../../src/agent/lock_probe.ts";
import { newSlot } from "../../src/agent/slot.ts";
import { Store } from "../../src/lease/store.ts";
import type { Outcome } from "../../src/ports/coordinator.ts";
import { FakeTime } from "../support/fake_time.ts";
import { fenceOf, lockFiles, makeStore, mustLock } from "../support/lock_files.ts";
import { tempDir } from "../support/temp_dir.ts";

const UNKNOWN = { kind: "unknown", reason: "no answer" } as const;

/** A world whose writes are answered so, after so long; returns its window's size after that. */
function world() {
  const time = new FakeTime();
  const unanswered: ((outcome: Outcome<number>) => void)[] = [];
  const coordinator = {
    putEntry: (_store: string, _expect: number, done: (outcome: Outcome<number>) => void) =>
      void unanswered.push(done),
  };
  const world = new World({} as never, { clock: time, coordinator } as never, () => {});
  const slot = newSlot(new Store("one", { nowMs: 0 }), null);
  return (times: number, tookMs: number, outcome: Outcome<number>): number => {
    for (let i = 0; i < times; i++) {
      world.perform(slot, { type: "put_entry", seq: i, expect: 0 });
      time.after(tookMs, () => unanswered.pop()!(outcome));
      time.step();
    }
    return world.window.size;
  };
}

test("perform() goes on sizing the window after the request that was timed had no answer", () => {
  const write = world();
  write(1, 1_500, UNKNOWN);
  expect(write(100, 1, { kind: "ok", value: 1 })).toBe(2_048);
});

test("perform() does not take a quick error, as in an election, for how quick an answer can be", () => {
  const write = world();
  write(1, 0.3, UNKNOWN);
  expect(write(100, 15, { kind: "ok", value: 1 })).toBe(2_048);
});

test("lockRefusalOf() does not name a process that has ended for the one that has the lock", () => {
  const fence = fenceOf("one", 7);
  const by = (isLeft: boolean) => lockRefusalOf({ kind: "busy", fence, isLeft }, "/lock");
  expect(by(false)).toMatchObject({ by: `process ${fence.pid} of node node-a` });
  expect(by(true)).toMatchObject({
    by: `what process ${fence.pid} of node node-a started, which has ended`,
  });
});

test("isUnlocked() is so of a store that nobody has locked, also where it is no more", () => {
  using dir = tempDir();
  const locks = lockFiles(dir.path);
  const world = new World({} as never, { locks } as never, () => {});
  for (const store of ["free", "locked"]) makeStore(locks, store);
  const held = mustLock(locks, "locked");
  expect(["free", "locked", "gone"].map((store) => world.isUnlocked(store)))
    .toEqual([true, false, true]);
  held.close();
});
