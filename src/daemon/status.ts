/**
 * What `status` and `--check` tell.
 * @module
 */
import { accessSync, constants, existsSync } from "node:fs";
import { dirname } from "node:path";
import type { Agent } from "../agent/agent.ts";
import type { HostMemory } from "../ports/host_memory.ts";
import type { StatusResult } from "../socket/protocol.ts";
import { VERSION } from "../version.ts";

/** What the status is made of. */
export interface StatusSources {
  readonly agent: Agent;
  readonly memory: HostMemory;
  readonly lockPath: string;
  readonly startedMs: number;
  readonly nowMs: () => number;
  readonly coordinator: () => StatusResult["coordinator"];
  readonly warnings: () => readonly string[];
  readonly connections: () => number;
}

/** The agent's status now. */
export function statusOf(sources: StatusSources): StatusResult {
  const { agent } = sources;
  const { node, incarnation, address, standalone } = agent.options;
  updateChecks(sources);
  const checks = agent.health.checks(WELL);
  const { timing } = agent;
  return {
    version: VERSION,
    node,
    incarnation,
    address,
    pid: process.pid,
    uptime_ms: Math.round(sources.nowMs() - sources.startedMs),
    mode: standalone === null ? "nats" : "standalone",
    state: agent.state,
    ttl_ms: timing?.ttlMs ?? null,
    grace_ms: timing?.graceMs ?? null,
    coordinator: sources.coordinator(),
    counts: { ...agent.counts(), connections: sources.connections() },
    healthy: agent.state !== "draining" && checks.every(({ ok }) => ok),
    checks,
    warnings: [...sources.warnings()],
  };
}

/** The checks that are there even when all is well, and what they say then. */
const WELL = {
  coordinator: "reachable",
  bucket: "as this agent was told",
  writes: "taken",
  renewals: "in time",
  lock_path: "usable",
  state_dir: "written",
  duplicate_node: "nobody else uses this node's name",
} as const;

/** The checks that are looked at only when somebody asks. */
function updateChecks({ agent, memory, lockPath }: StatusSources): void {
  const { health } = agent;
  const { problem } = memory;
  health.report(
    "state_dir",
    problem && `the state directory is behind: ${problem}; free space or restore its mode`,
  );
  health.report("lock_path", lockPathProblem(lockPath));
  const lateAfterMs = (agent.timing?.ttlMs ?? Infinity) / 3;
  const lateMs = agent.overdueMs;
  health.report(
    "renewals",
    lateMs <= lateAfterMs
      ? null
      : `overdue by ${Math.round(lateMs)} ms: the agent has no processor time; see what uses it`,
  );
}

/** The directory in which the stores are must be there and searchable. */
function lockPathProblem(template: string): string | null {
  const directory = dirname(template.slice(0, template.indexOf("{store}")) + "x");
  if (!existsSync(directory)) {
    return `the directory ${directory} of --lock-path does not exist; create it, or correct the path`;
  }
  try {
    accessSync(directory, constants.X_OK);
    return null;
  } catch {
    return `the directory ${directory} of --lock-path may not be entered by this agent's user`;
  }
}
