import { describe, expect, test } from "bun:test";
import type { StreamInfo } from "@nats-io/jetstream";
import { nanos } from "@nats-io/transport-node";
import { judgeLeases, judgeTenures } from "../../src/nats/judge.ts";
import { leasesConfig, tenuresConfig } from "../../src/nats/stream_config.ts";

const OURS = leasesConfig("leases", { ttlMs: 15_000, replicas: 3, firstSeq: 1 });
const TENURES = tenuresConfig("leases", { replicas: 3 });

function info(config: Record<string, unknown>): StreamInfo {
  return { config } as unknown as StreamInfo;
}

function leases(change: Record<string, unknown>, clustered = true) {
  const options = { wantedTtlMs: undefined, clustered };
  const { faults, warnings } = judgeLeases("leases", info({ ...OURS, ...change }), options);
  return { faults: faults.map(({ check }) => check), warnings: warnings.map(({ check }) => check) };
}

function tenures(change: Record<string, unknown>) {
  const judged = judgeTenures("leases-tenures", info({ ...TENURES, ...change }), {
    clustered: true,
  });
  return {
    faults: judged.faults.map(({ check }) => check),
    warnings: judged.warnings.map(({ check }) => check),
  };
}

describe("judgeLeases()", () => {
  test("finds nothing in what we create", () => {
    expect(leases({})).toEqual({ faults: [], warnings: [] });
  });

  test.each([
    ["no TTL", { max_age: 0 }, "ttl"],
    ["limit markers", { subject_delete_marker_ttl: nanos(1_000) }, "limit_markers"],
    ["other subjects", { subjects: ["$KV.leases.a.>"] }, "subjects"],
    ["a subject transform", { subject_transform: { src: ">", dest: "x.>" } }, "subjects"],
    ["a mirror", { mirror: { name: "KV_other" } }, "sources"],
    ["sources", { sources: [{ name: "KV_other" }] }, "sources"],
    ["a seal", { sealed: true }, "read_only"],
    ["no acknowledgements", { no_ack: true }, "read_only"],
    ["counters", { allow_msg_counter: true }, "counter"],
    ["work queue retention", { retention: "workqueue" }, "retention"],
    ["max_bytes that discard old entries", { max_bytes: 1_000, discard: "old" }, "limits"],
    ["max_msgs that discard old entries", { max_msgs: 10, discard: "old" }, "limits"],
  ])("forbids granting when the bucket has %s", (_name, change, check) => {
    expect(leases(change).faults).toEqual([check]);
  });

  test.each([
    ["TTLs of single keys", { allow_msg_ttl: true }, "message_ttl"],
    ["direct gets", { allow_direct: true }, "allow_direct"],
    ["deletable messages", { deny_delete: false }, "deny_delete"],
    ["a longer history", { max_msgs_per_subject: 5 }, "history"],
    ["max_bytes", { max_bytes: 1_000 }, "limits"],
    ["small messages", { max_msg_size: 100 }, "max_msg_size"],
    ["memory storage", { storage: "memory" }, "storage"],
    ["late writes", { persist_mode: "async" }, "storage"],
    ["one replica in a cluster", { num_replicas: 1 }, "replicas"],
    ["a TTL below 3 s", { max_age: nanos(2_999) }, "short_ttl"],
  ])("warns when the bucket has %s", (_name, change, check) => {
    expect(leases(change)).toEqual({ faults: [], warnings: [check] });
  });

  test("finds nothing wrong with one replica when there is one server", () => {
    expect(leases({ num_replicas: 1 }, false)).toEqual({ faults: [], warnings: [] });
  });

  test("names both TTLs when they differ", () => {
    const { faults } = judgeLeases("leases", info(OURS), { wantedTtlMs: 4_500, clustered: true });
    expect(faults[0].message).toContain("15s");
    expect(faults[0].message).toContain("4500ms");
  });
});

describe("judgeTenures()", () => {
  test("finds nothing in what we create", () => {
    expect(tenures({})).toEqual({ faults: [], warnings: [] });
  });

  test("forbids granting when records are forgotten", () => {
    expect(tenures({ max_age: nanos(3_600_000) }).faults).toEqual(["tenures_ttl"]);
    expect(tenures({ max_msgs: 5, discard: "old" }).faults).toEqual(["limits"]);
  });

  test("does not warn of a history without an end", () => {
    expect(tenures({ max_msgs_per_subject: -1 })).toEqual({ faults: [], warnings: [] });
  });

  test("warns when there is no history", () => {
    expect(tenures({ max_msgs_per_subject: 1 })).toEqual({ faults: [], warnings: ["history"] });
  });
});
