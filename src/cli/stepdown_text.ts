/** What a stepdown has come to, for people. */
import type { Methods } from "../client/mod.ts";
import { formatDuration } from "./duration.ts";
import { counted } from "./output.ts";

/** Its lines. Durations are in milliseconds, null where they are not known. */
export function stepdownLines(
  { released, remaining }: Methods["stepdown"]["result"],
  { forMs, ttlMs }: { forMs: number | null; ttlMs: number | null },
): string[] {
  const lines = [];
  if (released > 0) {
    const until = forMs === null
      ? ""
      : `; this node leaves them alone for ${formatDuration(forMs)}`;
    lines.push(`released ${counted(released, "store")}: other nodes may take them now${until}`);
  }
  if (remaining > 0) {
    const within = ttlMs === null ? "" : ` within ${formatDuration(ttlMs)}`;
    lines.push(
      `not released ${
        counted(remaining, "store")
      }, whose writes did not finish in time: their leases run ` +
        `out${within}, and the next holder owes a grace`,
    );
  }
  return lines.length > 0 ? lines : ["nothing to release: this node holds none of them"];
}
