import { expect, test } from "bun:test";
import { Nearest } from "../../src/agent/nearest.ts";
import { newSlot } from "../../src/agent/slot.ts";
import { Harness, ok, TTL_MS } from "../lease/harness.ts";

test("isFar() looks again before what it knows of is near: the hold was renewed meanwhile", () => {
  const [nearest, h] = [new Nearest(), new Harness()];
  h.acquire(50);
  const slot = newSlot(h.store, null);
  const isFar = () => nearest.isFar([slot], h.nowMs, h.context);
  expect(isFar()).toBe(true);
  const { deadlineMs } = h;
  for (let revision = 51; h.nowMs < deadlineMs; revision++) {
    h.pass(TTL_MS / 3 + 500);
    h.put(ok(revision));
    expect(isFar()).toBe(true);
  }
});
