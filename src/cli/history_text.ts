/**
 * A store's history for people: when, how long, how it ended, and what the next holder owed for that.
 * @module
 */
import type { Methods } from "../client/mod.ts";
import { roughDuration } from "./duration.ts";

type Tenure = Methods["history"]["result"]["tenures"][number];

const HEADER = ["EPOCH", "NODE", "ACQUIRED", "AGE", "HELD", "END", "GRACE", "ADDRESS"];

/**
 * Rows of a table, newest first as `tenures` are. `holdsEpoch` is the epoch of whoever holds the
 * store now, null where nobody does; `nowMs` is wall-clock time, as the records are.
 */
export function historyRows(
  tenures: readonly Tenure[],
  { nowMs, holdsEpoch }: { nowMs: number; holdsEpoch: number | null },
): string[][] {
  const rows = tenures.map((each, i) => {
    const startMs = Date.parse(each.acquired_at);
    const after = tenures[i - 1];
    const holds = each.epoch === holdsEpoch;
    return [
      String(each.epoch),
      each.node,
      each.acquired_at.replace(/\.\d+Z$/, "Z"),
      roughDuration(nowMs - startMs),
      heldFor(each, { nowMs, startMs, holds, after }),
      endOf(each, holds),
      graceOf(each, tenures[i + 1]),
      each.address ?? "-",
    ];
  });
  return [HEADER, ...rows];
}

/** Of a tenure that was not released, only when the next began is on record. */
function heldFor(
  { released_at }: Tenure,
  { nowMs, startMs, holds, after }: {
    nowMs: number;
    startMs: number;
    holds: boolean;
    after: Tenure | undefined;
  },
): string {
  if (released_at !== undefined) return roughDuration(Date.parse(released_at) - startMs);
  if (holds) return roughDuration(nowMs - startMs);
  const endMs = after === undefined ? nowMs : Date.parse(after.acquired_at);
  return `up to ${roughDuration(endMs - startMs)}`;
}

function endOf({ released_at, reason }: Tenure, holds: boolean): string {
  if (released_at !== undefined) return reason ?? "released";
  return holds ? "holds it now" : "not released";
}

/**
 * What this tenure owed for the one `before`, as far as the records tell. Whether the agent of the same
 * run had seen another in between, or was back in time after a restart, they do not: these have words of
 * their own instead of a guess.
 */
function graceOf(tenure: Tenure, before: Tenure | undefined): string {
  if (before === undefined) return "not known";
  if (before.epoch >= tenure.epoch) return "stale epoch";
  if (before.released_at !== undefined) return "none";
  if (before.incarnation === tenure.incarnation) return "again";
  return before.node === tenure.node ? "restart" : "owed";
}
