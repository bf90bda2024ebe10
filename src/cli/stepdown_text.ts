/** What a stepdown has come to, for people. */
import type { Methods } from "../client/mod.ts";
import { formatDuration } from "./duration.ts";
import { counted } from "./output.ts";

/** Its lines. `forMs` is how long stores are left alone; null where that is not known. */
export function stepdownLines(
  { released, remaining }: Methods["stepdown"]["result"],
  forMs: number | null,
): string[] {
  const lines = [];
  if (released > 0) {
    const until = forMs === null
      ? ""
      : `; this node leaves them alone for ${formatDuration(forMs)}`;
    lines.push(`released ${counted(released, "store")}: other nodes may take them now${until}`);
  }
  if (remaining > 0) {
    const within = forMs === null ? "soon" : `within ${formatDuration(forMs)}`;
    lines.push(
      `not released ${
        counted(remaining, "store")
      }, whose writes did not finish in time: this node ` +
        `keeps them until they do, and releases them then, if that is ${within}`,
    );
  }
  return lines.length > 0 ? lines : ["nothing to release: this node holds none of them"];
}
