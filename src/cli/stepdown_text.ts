/** What a step-down waits for, and what it has come to, for people. */
import { AgentError, type Connection, type Methods } from "../client/mod.ts";
import { formatDuration } from "./duration.ts";
import { allLeases } from "./leases.ts";
import { counted, shortened } from "./output.ts";
import { obstacleOf } from "./refusal.ts";

/** Its lines. `forMs` is how long it asked that stores be left alone; null where that is not known. */
export function stepdownLines(
  { overtaken, ...done }: Methods["stepdown"]["result"],
  forMs: number | null,
): string[] {
  if (!overtaken) return doneLines(done, forMs);
  const what = done.released + done.remaining === 0
    ? ["nothing to release"]
    : doneLines(done, null);
  return [
    ...what,
    "what was ordered meanwhile counts by now, for some stores at least: see agent status",
  ];
}

function doneLines(
  { released, remaining, aging = 0 }: Methods["stepdown"]["result"],
  forMs: number | null,
): string[] {
  const lines = [];
  if (released > 0) {
    const alone = forMs === null
      ? ""
      : forMs === 0
      ? ", and this one, too"
      : `; this node leaves them alone for ${formatDuration(forMs)}`;
    lines.push(`released ${counted(released, "store")}: other nodes may take them now${alone}`);
  }
  if (aging > 0) {
    lines.push(
      `gave up ${
        counted(aging, "store")
      } without a release: the coordinator was not asked, or did not ` +
        "answer, so other nodes can take them only when their entries have aged out",
    );
  }
  const kept = remaining - aging;
  if (kept > 0) {
    const then = forMs === 0
      ? ""
      : `until they do, and releases them then, if that is ${
        forMs === null ? "soon" : `within ${formatDuration(forMs)}`
      }`;
    lines.push(
      `not released ${
        counted(kept, "store")
      }, lost, or with writes that did not finish in time: those this node keeps ${then}`.trimEnd(),
    );
  }
  if (lines.length > 0) return lines;
  if (forMs === 0) return ["nothing to release; this node takes stores again when asked"];
  const alone = forMs === null ? "" : `, and takes none of them for ${formatDuration(forMs)}`;
  return [`nothing to release: this node holds none of them${alone}`];
}

/** Who keeps a step-down of one store, or of all (null), from its end; null: nobody any more. */
export async function whoIsInTheWay(
  agent: Connection,
  store: string | null,
): Promise<string | null> {
  const left = store === null ? await ownStores(agent) : [store];
  if (left.length === 0) return null;
  const who = await whoWrites(agent, left[0]!);
  if (who === null) return null;
  const others = left.length === 1 ? "" : ` and ${left.length - 1} more`;
  return `waiting for ${shortened(left[0]!)}${others}: ${who}`;
}

async function ownStores(agent: Connection): Promise<string[]> {
  return (await allLeases(agent)).filter(({ state }) => state === "self").map(({ store }) => store);
}

/** A guard is refused while a step-down lasts, and the refusal says who still writes. */
async function whoWrites(agent: Connection, store: string): Promise<string | null> {
  try {
    const { token } = await agent.call("guard", { store });
    await agent.call("release", { token });
    return null; // It was over already.
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    return error.kind === "draining" ? obstacleOf(error) : null;
  }
}
