/**
 * The logs of the stores: epochs never go back, every line is of a live grant and of its epoch, and
 * nothing that was written is missing.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Exemptions } from "./exemptions.ts";
import type { Event, EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

/** Lines of a writer that only `sh` writes: its clock, /proc/uptime, is cut to hundredths. */
const COARSE_CLOCK_MS = 10;

/** What is wrong with the lines of the logs. */
export function checkWrites(
  events: readonly Event[],
  attempts: readonly Attempt[],
  exemptions: Exemptions,
): Violation[] {
  return [
    ...checkEpochs(events, exemptions),
    ...checkOrder(events),
    ...checkLines(events, attempts),
    ...findMissing(events, attempts),
  ];
}

function linesOf(events: readonly Event[]): EventOf<"written">[] {
  return events.filter((event) => event.kind === "written").sort((a, b) => a.index - b.index);
}

function checkEpochs(events: readonly Event[], exemptions: Exemptions): Violation[] {
  const violations: Violation[] = [];
  // Of agents and of older programs, each the newest: what is exempt hides nothing else.
  const newest = new Map<string, EventOf<"written">>();
  for (const line of linesOf(events)) {
    if (exemptions.isBehind(line)) continue;
    for (const older of [false, true]) {
      const before = newest.get(`${line.store} ${older}`);
      if (before === undefined || line.epoch >= before.epoch) continue;
      if (exemptions.cover(line.t, [line.node, before.node])) continue;
      violations.push({
        rule: "epoch",
        t: line.t,
        message: `store ${line.store}, line ${line.index}: epoch ${line.epoch} of ${line.node} ` +
          `after epoch ${before.epoch} of ${before.node}`,
      });
    }
    const key = `${line.store} ${exemptions.isOlder(line.node)}`;
    if (line.epoch >= (newest.get(key)?.epoch ?? 0)) newest.set(key, line);
  }
  return violations;
}

/** The numbers of a log's lines, and their times: each was there before the next one was appended. */
function checkOrder(events: readonly Event[]): Violation[] {
  const logs = new Map<string, { lines: number; begunMs: number }>();
  return linesOf(events).flatMap(({ store, index, t, doneMs = Infinity }) => {
    const { lines, ...before } = logs.get(store) ?? { lines: 0, begunMs: 0 };
    const begunMs = Math.max(before.begunMs, t);
    logs.set(store, { lines: index + 1, begunMs });
    const wrong = index !== lines
      ? `line ${index} where line ${lines} should be`
      : doneMs + COARSE_CLOCK_MS < begunMs
      ? `line ${index} was done before it, or an earlier one, was begun`
      : null;
    return wrong === null
      ? []
      : [{ rule: "write", t, message: `store ${store}: ${wrong}` } as const];
  });
}

function checkLines(events: readonly Event[], attempts: readonly Attempt[]): Violation[] {
  const byId = new Map(attempts.map((attempt) => [attempt.id, attempt]));
  return linesOf(events).flatMap((line) => {
    const wrong = wrongLine(line, byId.get(line.id));
    if (wrong === null) return [];
    const message =
      `store ${line.store}, line ${line.index}, of ${line.id} on ${line.node}: ${wrong}`;
    return [{ rule: "write", t: line.t, message } as const];
  });
}

function wrongLine(line: EventOf<"written">, attempt: Attempt | undefined): string | null {
  const grant = attempt?.grant;
  if (attempt === undefined || !grant) return "written without a grant";
  if (grant.store !== line.store) return `written with a grant for ${grant.store}`;
  if (grant.node !== line.node) return `written with a grant on ${grant.node}`;
  if (grant.epoch !== line.epoch) return `written with epoch ${grant.epoch} granted`;
  const before = attempt.writes[attempt.writes.indexOf(line) - 1]?.seq ?? 0;
  if (line.seq <= before) return `sequence ${line.seq} out of order`;
  if (line.seq > before + 1) return `sequence ${line.seq} after ${before}: a line is missing`;
  const slackMs = grant.deadlineMs === null ? COARSE_CLOCK_MS : 0;
  if (line.t + slackMs < grant.t) return "written before it was granted";
  const doneMs = line.doneMs ?? line.t;
  const { status, endMs } = attempt;
  if (status === 0 && doneMs > endMs! + slackMs) return "written after its command had ended";
  const covered = attempt.spans.some((span) =>
    line.t + slackMs >= span.fromMs && doneMs <= span.toMs + slackMs
  );
  return covered ? null : "written when its grant was no longer live";
}

/** Lines that were written, and are not in a log; or are there, and were not. */
function findMissing(events: readonly Event[], attempts: readonly Attempt[]): Violation[] {
  const missing = (t: number, message: string): Violation => ({ rule: "write", t, message });
  const noted = events.filter((event) => event.kind === "wrote").map(({ t, id, seq }) =>
    missing(t, `${id} wrote line ${seq}, which is not in the log`)
  );
  const cut = attempts.flatMap(({ ask, status, endMs, writes, id }) =>
    status === 0 && ask?.writes !== undefined && writes.length !== ask.writes
      ? [missing(endMs!, `${id} wrote ${ask.writes} lines, and ${writes.length} are in the log`)]
      : []
  );
  return [...noted, ...cut];
}
