import { expect, test } from "bun:test";
import { StateMemory } from "../../src/daemon/memory.ts";
import type { StateDir } from "../../src/disk/state_dir.ts";
import { processStartTime } from "../../src/sys/proc.ts";

function memory() {
  const told: unknown[] = [];
  const journal = {
    grant: ({ startTime }: { startTime: number | null }) => told.push(startTime),
    endInherited: (store: string) => told.push(store),
  };
  const state = { journal, graces: () => new Map(), forgetGrace: () => null };
  return { told, memory: new StateMemory(state as unknown as StateDir, "i") };
}

test("beginGrant() tells a process from a later one of its number while it has any connection", () => {
  const { told, memory: ours } = memory();
  const { pid } = process;
  ours.clientConnected(pid);
  ours.clientConnected(pid);
  ours.clientGone(pid);
  ours.beginGrant(1, { store: "one", epoch: 1, pid, lingerMs: 0 });
  ours.clientGone(pid);
  ours.beginGrant(2, { store: "one", epoch: 1, pid, lingerMs: 0 });
  expect(told).toEqual([processStartTime(pid), null]);
});

test("forgetGrace() ends what earlier agents granted in the store: its deadlines are past", () => {
  const { told, memory: ours } = memory();
  ours.forgetGrace("one");
  expect(told).toEqual(["one"]);
});
