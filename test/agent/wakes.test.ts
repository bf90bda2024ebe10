import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Sleeper, Wakes } from "../../src/agent/wakes.ts";

interface Named extends Sleeper {
  readonly name: number;
}

function sleepers(count: number): Named[] {
  return Array.from({ length: count }, (_, name) => ({ name, wakeMs: Infinity }));
}

test("takeDue() wakes each once, at the time set last, never early, and within the grid", () => {
  const times = fc.double({ min: 1, max: 1_000, noNaN: true });
  const sets = fc.array(fc.tuple(fc.nat(9), times), { maxLength: 60 });
  fc.assert(fc.property(sets, (all) => {
    const wakes = new Wakes<Named>();
    const named = sleepers(10);
    const wanted = new Map<number, number>();
    for (const [name, atMs] of all) {
      wakes.set(named[name], atMs, 0);
      wanted.set(name, atMs);
    }
    const woken = new Map<number, number>();
    for (let nowMs = 0; nowMs <= 1_010; nowMs++) {
      for (let one = wakes.takeDue(nowMs); one !== undefined; one = wakes.takeDue(nowMs)) {
        expect(woken.has(one.name)).toBe(false);
        woken.set(one.name, nowMs);
      }
    }
    expect([...woken.keys()].sort()).toEqual([...wanted.keys()].sort());
    for (const [name, atMs] of woken) {
      expect(atMs).toBeGreaterThanOrEqual(wanted.get(name)!);
      expect(atMs).toBeLessThan(wanted.get(name)! + 6);
    }
    expect(wakes.nextMs).toBe(Infinity);
  }));
});
