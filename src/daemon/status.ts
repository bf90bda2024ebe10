/**
 * What `status` and `--check` tell.
 * @module
 */
import { accessSync, constants, existsSync } from "node:fs";
import { dirname } from "node:path";
import type { Agent } from "../agent/agent.ts";
import type { Check } from "../agent/types.ts";
import { atMost } from "../lease/duration_text.ts";
import type { HostMemory } from "../ports/host_memory.ts";
import type { StatusResult } from "../socket/protocol.ts";
import { cgroupProblem } from "../sys/cgroup.ts";
import { VERSION } from "../version.ts";
import type { Warning } from "./coordinators.ts";
import { stepdownCheck, stepdownWarnings } from "./stepdown_status.ts";

/** What the status is made of. */
export interface StatusSources {
  readonly agent: Agent;
  readonly memory: HostMemory;
  readonly lockPath: string;
  readonly startedMs: number;
  readonly nowMs: () => number;
  readonly coordinator: () => StatusResult["coordinator"];
  readonly warnings: () => readonly Warning[];
  /** How far the coordinator's clock is ahead, in milliseconds; null where nobody knows. */
  readonly aheadMs: () => number | null;
  readonly connections: () => number;
}

/** The agent's status now. */
export function statusOf(sources: StatusSources): StatusResult {
  const { agent } = sources;
  const { node, incarnation, address, standalone } = agent.options;
  updateChecks(sources);
  const warnings = sources.warnings();
  const clock = clockOf(sources.aheadMs());
  const server = { server_version: versionOf(sources, warnings), clock: clock.message };
  const well = { ...WELL, ...server, ...reservations(sources) };
  const { stepDowns } = agent.drains;
  const checks = [
    ...drainingCheck(agent),
    ...stepdownCheck(stepDowns, standalone !== null),
    ...agent.health.checks(well).map((check) => withoutConnection(check, sources)),
    cgroupCheck(),
  ];
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
    healthy: checks.every(({ ok }) => ok),
    checks,
    warnings: [
      ...[...warnings, ...clock.off ? [clock] : []].map(({ message }) => message),
      ...stepdownWarnings(stepDowns),
    ],
  };
}

/**
 * Why a write was not answered, and what to do about it, was said of a connection that is there no more:
 * what is in the way now is that there is none.
 */
function withoutConnection(check: Check, { agent, coordinator }: StatusSources): Check {
  if (check.name !== "writes" || check.ok) return check;
  if (coordinator().connected || !agent.health.fails("coordinator")) return check;
  return { ...check, message: "not taken, for the reason that `coordinator` gives" };
}

/** The server's version, or what is to be said of it although it is used. */
function versionOf({ coordinator }: StatusSources, warnings: readonly Warning[]): string {
  const warning = warnings.find(({ check }) => check === "server_version");
  return warning?.message ?? coordinator().version ?? "not known";
}

/** Clocks further apart than this confuse whoever reads the times of two hosts. */
const CLOCKS_APART_MS = 1_000;

/**
 * Whether this host's clock and the coordinator's agree. It stops no write: deadlines are counted on
 * a clock that nobody sets. But a coordinator's clock that is set forward ends leases early, and
 * records carry times.
 */
function clockOf(aheadMs: number | null): { off: boolean; message: string } {
  if (aheadMs === null) return { off: false, message: "the coordinator's is not known" };
  const apart = `${(Math.abs(aheadMs) / 1_000).toFixed(1)} s`;
  if (Math.abs(aheadMs) <= CLOCKS_APART_MS) {
    return { off: false, message: `within ${apart} of the coordinator's` };
  }
  const message =
    `the coordinator's clock is ${apart} ${aheadMs > 0 ? "ahead of" : "behind"} this ` +
    "host's; synchronise both (see timedatectl): times in `agent history` mislead, and a " +
    "coordinator's clock that is set forward ends leases early";
  return { off: true, message };
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

/** What cannot be said so while it is not seen. */
function reservations({ agent, coordinator }: StatusSources): Readonly<Record<string, string>> {
  if (agent.options.standalone !== null) return ALONE;
  if (agent.timing === null) return UNSEEN;
  return coordinator().connected ? {} : AWAY;
}

/** The coordinator was not reached, or not used, since the agent was started. */
const UNSEEN = {
  bucket: "not seen yet",
  writes: "none yet",
  renewals: "none yet",
  duplicate_node: "nobody was seen yet",
} as const;

/** It was, and cannot be now. */
const AWAY = {
  bucket: "as this agent was told, when it was seen last",
  writes: "none without a connection",
  renewals: "none without a connection",
} as const;

/** What there is nothing to say of without a coordinator. */
const NONE = "none: standalone";
const ALONE = {
  coordinator: NONE,
  bucket: NONE,
  duplicate_node: NONE,
  server_version: NONE,
  clock: NONE,
} as const;

/** While it shuts down, writes are refused for that reason alone. */
function drainingCheck(agent: Agent): Check[] {
  if (agent.state !== "draining") return [];
  const { grants } = agent.counts();
  const left = atMost(agent.drains.leftMs);
  const elsewhere = agent.options.standalone === null ? "send writes to another node, or " : "";
  const message = `this agent is shutting down: ${grants} grant${grants === 1 ? "" : "s"} may ` +
    `finish, for at most ${left} more, then its leases are released; ${elsewhere}start it again`;
  return [{ name: "draining", ok: false, message }];
}

/** Never a reason not to guard writes, but one to know how far a guard reaches. */
function cgroupCheck(): Check {
  const problem = cgroupProblem();
  const message = problem === null
    ? "available: what a guarded command starts is found there, unless it moves itself to another cgroup"
    : `not available to this agent (${problem}): what leaves a guarded command's process group is ` +
      "found by its environment";
  return { name: "guard_cgroup", ok: true, message };
}

/** The checks that are looked at only when somebody asks. */
function updateChecks({ agent, memory, lockPath, coordinator }: StatusSources): void {
  const { health } = agent;
  health.report("state_dir", memory.problem);
  health.report("lock_path", lockPathProblem(lockPath));
  const lateAfterMs = (agent.timing?.ttlMs ?? Infinity) / 3;
  const late = renewalsProblem(agent, lateAfterMs);
  // Without a connection nothing else is to be expected, and that is told.
  const expected = !coordinator().connected && !health.fails("renewals");
  // How late changes all the time.
  health.report("renewals", expected ? null : late, false);
}

/** Renewals are sent in time, and acknowledged before the next is due. */
function renewalsProblem(agent: Agent, lateAfterMs: number): string | null {
  const { overdueMs, renewalOverdueMs } = agent;
  if (overdueMs > lateAfterMs) {
    return `sent ${
      Math.round(overdueMs)
    } ms late: the agent has no processor time; see what uses it`;
  }
  if (renewalOverdueMs > lateAfterMs) {
    const told = ["coordinator", "writes"].find((name) => agent.health.fails(name));
    const why = told !== undefined
      ? `for the reason that \`${told}\` gives`
      : "the coordinator does not answer; see whether the leases' stream has a leader";
    return `not acknowledged for ${Math.round(renewalOverdueMs)} ms since they were due: ${why}`;
  }
  return null;
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
