/**
 * Reading histories, and putting the files of a run together to one.
 * @module
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Event, EventOf } from "./history.ts";
import { isEvent } from "./shapes.ts";

/** What was read is no history, or not all of one. */
export class HistoryError extends Error {
  override readonly name = "HistoryError";
}

/**
 * Reads a history, or a part of one; a last line that its killed writer did not finish is left out.
 *
 * @throws {HistoryError} that names the first line that is none of a history.
 */
export function parseHistory(text: string): Event[] {
  // What is behind the last line break was cut short.
  return text.split("\n").slice(0, -1).flatMap((line, index) => {
    if (line === "") return [];
    const event = parseJson(line);
    if (isEvent(event)) return [event];
    throw new HistoryError(`line ${index + 1} is no line of a history: ${line.slice(0, 100)}`);
  });
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

/**
 * Puts the files of a run together: the histories of its processes (`*.jsonl` in `dir`), and the logs
 * of its stores, whose order is the order of the writes. Sorted by time; the order of a log wins.
 */
export function collect(
  dir: string,
  logs: ReadonlyMap<string, string>,
): Event[] {
  const events: Event[] = [];
  for (const name of readdirSync(dir).filter((name) => name.endsWith(".jsonl"))) {
    events.push(...parseHistory(readFileSync(join(dir, name), "utf8")));
  }
  const done = new Map<string, EventOf<"wrote">>();
  for (const event of events) {
    if (event.kind === "wrote") done.set(`${event.id} ${event.seq}`, event);
  }
  for (const [store, path] of logs) {
    readLog(path).forEach((line, index) => {
      const key = `${line.id} ${line.seq}`;
      events.push({ ...line, doneMs: done.get(key)?.t, kind: "written", store, index });
      done.delete(key);
    });
  }
  const lacking = new Set<Event>(done.values());
  return events.filter((event) => event.kind !== "wrote" || lacking.has(event))
    .sort((a, b) => a.t - b.t);
}

type LogLine = Omit<EventOf<"written">, "kind" | "store" | "index">;

function readLog(path: string): LogLine[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return []; // Nobody wrote to it yet.
  }
  return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
}
