import { expect, test } from "bun:test";
import { mayWait } from "../../src/agent/renewals.ts";
import type { LeaseContext } from "../../src/lease/lease_context.ts";
import { ALL_RULES } from "../../src/lease/rules.ts";
import { Store } from "../../src/lease/store.ts";
import { timingOf } from "../../src/lease/timing.ts";

const TTL_MS = 15_000;
const context: LeaseContext = {
  timing: timingOf({ ttlMs: TTL_MS }),
  node: "alpha",
  incarnation: "a1",
  rules: ALL_RULES,
  connected: true,
  inherits: () => null,
};

/** A store held since `nowMs`, its record written. */
function held(nowMs: number): Store {
  const store = new Store("s", { nowMs, pinned: true });
  store.handle({ type: "tick" }, nowMs, context);
  const answers = [
    { type: "put_done", value: 10 },
    { type: "tenure_read", value: { revision: 0, record: null } },
    { type: "tenure_put", value: 1 },
  ] as const;
  for (const { type, value } of answers) {
    const event = { type, seq: store.lease.seq, outcome: { kind: "ok", value } } as never;
    store.handle({ type: "lease", event }, nowMs, context);
  }
  expect(store.held(nowMs, context)).toBe(true);
  return store;
}

test("mayWait() lets a renewal wait up to two thirds of the TTL, not longer", () => {
  const store = held(0);
  expect(mayWait(store, TTL_MS / 3, context)).toBe(true);
  expect(mayWait(store, (2 / 3) * TTL_MS - 1, context)).toBe(true);
  expect(mayWait(store, (2 / 3) * TTL_MS, context)).toBe(false);
});

test("mayWait() lets nothing wait that somebody waits for, nor what is not ours", () => {
  const store = held(0);
  const guard = {
    id: 1,
    shared: false,
    waitMs: 0,
    waitLease: false,
    follow: false,
    passLock: false,
    pid: 1,
  };
  store.handle({ type: "guard", guard }, 1, context);
  expect(mayWait(store, TTL_MS / 3, context)).toBe(false);
  expect(mayWait(new Store("new", { nowMs: 0 }), 1, context)).toBe(false);
});
