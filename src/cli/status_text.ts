/**
 * The agent's status for people.
 * @module
 */
import type { StatusResult } from "../client/mod.ts";
import { formatDuration, roughDuration } from "./duration.ts";
import { counted, table } from "./output.ts";
import type { Paint, Piece } from "./output.ts";

/** The lines of `agent status`, each in its pieces. */
export function statusLines(status: StatusResult, paint: Paint): Piece[][] {
  const verdict = status.healthy ? paint("green", "healthy") : paint("red", "not healthy");
  const facts = table([
    ["node", `${status.node}${status.address === null ? "" : ` at ${status.address}`}`],
    [
      "agent",
      `version ${status.version}, pid ${status.pid}, up ${roughDuration(status.uptime_ms)}`,
    ],
    ["incarnation", status.incarnation],
    ["coordinator", coordinator(status)],
    ["lease", leaseTimes(status)],
    [
      "stores",
      `${status.counts.held} held, ${status.counts.waiting} waiting, ` +
      `${status.counts.foreign} held by others`,
    ],
    [
      "callers",
      `${counted(status.counts.grants, "grant")}, ${status.counts.waiters} waiting, ` +
      counted(status.counts.connections, "connection"),
    ],
  ]).map((line): Piece[] => [`  ${line}`]);
  // What is wrong first: the rest is long.
  const failing = status.checks.filter(({ ok }) => !ok);
  const sorted = failing.concat(status.checks.filter(({ ok }) => ok));
  const checks = sorted.map(({ name, ok, message }): Piece[] => {
    const mark = ok ? paint("green", "ok  ") : paint("red", "FAIL");
    return ["  ", mark, ` ${name}${message === "" ? "" : `: ${message}`}`];
  });
  const warnings = status.warnings.map((text): Piece[] => [
    "  ",
    paint("yellow", "warning"),
    ` ${text}`,
  ]);
  return [
    [paint("bold", "zit lease agent"), `: ${status.state}, `, verdict],
    ...facts,
    ...checks.slice(0, failing.length),
    ...warnings,
    ...checks.slice(failing.length),
  ];
}

function coordinator({ mode, coordinator }: StatusResult): string {
  if (mode === "standalone") return "none (standalone)";
  const server = [coordinator.server, coordinator.version && `version ${coordinator.version}`]
    .filter((each) => each).join(", ");
  if (!coordinator.connected) return `not connected${server && ` (last: ${server})`}`;
  const rtt = coordinator.rtt_ms === null ? "" : `, ${coordinator.rtt_ms.toFixed(1)} ms away`;
  return `connected to ${server || "NATS"}${rtt}`;
}

function leaseTimes({ ttl_ms, grace_ms }: StatusResult): string {
  const ttl = ttl_ms === null ? "TTL not known yet" : `TTL ${formatDuration(ttl_ms)}`;
  return grace_ms === null ? ttl : `${ttl}, grace ${formatDuration(grace_ms)}`;
}
