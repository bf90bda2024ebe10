/** What `status` makes of what is known. */
import { expect, test } from "bun:test";
import { statusOf } from "../../src/daemon/status.ts";
import type { HostMemory } from "../../src/ports/host_memory.ts";
import { FakeTime } from "../support/fake_time.ts";
import { plainAgent } from "../support/plain_agent.ts";

test("status gives the coordinator's reason for writes that were not taken once there is no connection", () => {
  const agent = plainAgent(new FakeTime(), { ttlMs: 10_000, standalone: null });
  agent.setProblem(null);
  let connected = true;
  const writes = () =>
    statusOf({
      agent,
      memory: { problem: null } as HostMemory,
      lockPath: "/tmp/{store}",
      startedMs: 0,
      nowMs: () => 0,
      coordinator: () => ({ connected, server: null, version: null, rtt_ms: null }),
      warnings: () => [],
      aheadMs: () => null,
      connections: () => 0,
    }).checks.find(({ name }) => name === "writes");
  expect(writes()).toMatchObject({ ok: true });
  agent.health.report("writes", "see whether the disk is full");
  expect(writes()).toMatchObject({ ok: false, message: "see whether the disk is full" });
  connected = false;
  agent.setProblem("a stray is not used");
  expect(writes()).toMatchObject({ ok: false, message: expect.stringContaining("`coordinator`") });
});
