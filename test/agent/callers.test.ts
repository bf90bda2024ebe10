import { expect, test } from "bun:test";
import { Callers } from "../../src/agent/callers.ts";
import { newSlot, type SlotLock } from "../../src/agent/slot.ts";
import type { AgentPorts, Client } from "../../src/agent/types.ts";
import { Store } from "../../src/lease/store.ts";
import { FakeTime } from "../support/fake_time.ts";

const CLIENT = { id: 1, pid: 1 } as Client;
const HOW = { waitMs: 0, shared: false, waitLease: false, passLock: false, follow: false };

test("overLimit() counts the locks of grants, not only those of guards that wait", () => {
  const nothing = new Proxy({}, { get: () => () => null });
  const ports = { clock: new FakeTime(), memory: nothing, observer: nothing, newToken: () => "t" };
  const callers = new Callers(ports as unknown as AgentPorts);
  const limits = { maxWaiters: 10, maxGrants: 10, maxLocks: 1 };
  expect(callers.overLimit(CLIENT, "one", limits)).toBeNull();
  const slot = newSlot(new Store("one", { nowMs: 0 }), null);
  slot.locks = new Map([[1, { fd: 3, path: "lock", passed: false } as SlotLock]]);
  const id = callers.guard(slot, CLIENT, { store: "one", ...HOW }, { ok() {}, fail() {} });
  const granted = { lockId: 1, epoch: 1, revision: 1, deadlineMs: 60_000 };
  expect(callers.grant(slot, { type: "granted", id, ...granted }, null)).toEqual([]);
  expect(callers.counts).toEqual({ waiters: 0, grants: 1 });
  expect(callers.overLimit(CLIENT, "two", limits)).toMatchObject({ kind: "limit" });
});
