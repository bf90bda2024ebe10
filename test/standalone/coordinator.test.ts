/**
 * What stands in for the coordinator keeps tenures as a real one does. There is nobody else to write
 * entries, so the rest of the contract has nothing to say of it.
 * @module
 */
import { expect, test } from "bun:test";
import { StandaloneCoordinator } from "../../src/standalone/coordinator.ts";
import {
  Client,
  type CoordinatorFixture,
  describeCoordinator,
  value,
} from "../contract/coordinator.ts";

const SELF = { node: "alone", incarnation: "i1", address: null };

function standaloneFixture(): CoordinatorFixture {
  const coordinator = new StandaloneCoordinator({ ...SELF, epochOnDisk: () => 0 });
  const nobodyElse = () => Promise.reject(new Error("there is nobody else"));
  return {
    ttlMs: 1,
    open: () => Promise.resolve(coordinator),
    putForeign: nobodyElse,
    pass: (ms) => Bun.sleep(ms),
    settle: (promise) => promise,
    disconnect: nobodyElse,
    reconnect: nobodyElse,
    stop: () => Promise.resolve(),
  };
}

describeCoordinator("standalone", () => Promise.resolve(standaloneFixture()), { records: true });

test("epochs go on from the one on disk, and records of one epoch by two runs stay two", async () => {
  const coordinator = new StandaloneCoordinator({ ...SELF, epochOnDisk: () => 41 });
  const client = new Client({ settle: (promise) => promise }, coordinator);
  expect(value(await client.put("s", 0))).toBe(42);
  const record = { ...SELF, epoch: 42, acquired_at: "2026-01-02T03:04:05Z" };
  const revision = value(await client.putTenure("s", 0, record));
  value(await client.putTenure("s", revision, { ...record, incarnation: "i2" }));
  expect(value(await client.history("s"))).toHaveLength(2);
});
