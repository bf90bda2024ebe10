/**
 * Judges a history: was there ever more than one writer, did epochs go back, was every write made
 * under a live grant, was every refusal true, and came every store back in time.
 *
 * It knows the history alone, so that a saved one can be checked again, by a newer checker too.
 * @module
 */
import { checkGraces } from "./graces.ts";
import { Exemptions } from "./exemptions.ts";
import type { Event, EventOf } from "./history.ts";
import { checkRefusals } from "./refusals.ts";
import { type Attempt, attemptsOf } from "./sections.ts";

/** Something that must not be. */
export interface Violation {
  readonly rule: "overlap" | "epoch" | "write" | "grace" | "refusal" | "stuck";
  readonly t: number;
  readonly message: string;
}

/** What a history amounts to. */
export interface Verdict {
  readonly grants: number;
  readonly writes: number;
  readonly overlaps: number;
  readonly stuck: number;
  readonly violations: readonly Violation[];
  /** Refusals by kind. */
  readonly refusals: Readonly<Record<string, number>>;
  /** How long after each calm each store was granted again, in milliseconds. */
  readonly recoveriesMs: readonly number[];
}

/** Lines of a writer that only `sh` writes: its clock, /proc/uptime, is cut to hundredths. */
const COARSE_CLOCK_MS = 10;

/** A request may be answered later than its wait by so much: the coordinator's 2 s, a busy machine. */
const ANSWER_SLACK_MS = 15_000;

/** Judges a history, sorted by time. */
export function check(events: readonly Event[]): Verdict {
  const setup = events.find((event) => event.kind === "setup");
  if (setup === undefined) throw new Error("The history has no setup line");
  const attempts = [...attemptsOf(events).values()];
  const recoveriesMs: number[] = [];
  const exemptions = new Exemptions(events, setup);
  const stuck = [
    ...findUnrecovered(events, setup, recoveriesMs),
    ...findUnanswered(events, attempts),
  ];
  const violations = [
    ...findOverlaps(attempts, exemptions),
    ...checkLogs(events, attempts, exemptions),
    ...checkGraces(events, attempts, exemptions),
    ...checkRefusals(events, attempts, setup),
    ...stuck,
  ].sort((a, b) => a.t - b.t);
  return {
    grants: attempts.filter(({ grant }) => grant !== null).length,
    writes: events.filter(({ kind }) => kind === "written").length,
    // Epochs that go back, writes under no grant, and graces cut short are overlaps, or their chance.
    overlaps: violations.filter(({ rule }) => rule !== "stuck" && rule !== "refusal").length,
    stuck: stuck.length,
    violations,
    refusals: countRefusals(attempts),
    recoveriesMs,
  };
}

/** The last line of a run. */
export function summary({ grants, overlaps, stuck }: Verdict): string {
  return `grants=${grants} overlaps=${overlaps} stuck=${stuck}`;
}

/** Two grants of one store live at one time: by what the clients were told, or by what they wrote. */
function findOverlaps(attempts: readonly Attempt[], exemptions: Exemptions): Violation[] {
  const byStore = new Map<string, { id: string; node: string; fromMs: number; toMs: number }[]>();
  for (const { id, grant, spans } of attempts) {
    if (grant === null) continue;
    const list = byStore.get(grant.store) ?? [];
    byStore.set(grant.store, list);
    for (const span of spans) list.push({ id, node: grant.node, ...span });
  }
  const violations: Violation[] = [];
  for (const [store, spans] of byStore) {
    spans.sort((a, b) => a.fromMs - b.fromMs);
    let longest = spans[0];
    for (const span of spans.slice(1)) {
      const exempt = exemptions.cover(span.fromMs, [span.node, longest.node]);
      if (span.id !== longest.id && span.fromMs < longest.toMs && !exempt) {
        violations.push({
          rule: "overlap",
          t: span.fromMs,
          message:
            `store ${store}: ${span.id} on ${span.node} was granted while ${longest.id} on ` +
            `${longest.node} was live for another ${(longest.toMs - span.fromMs).toFixed(1)} ms`,
        });
      }
      if (span.toMs > longest.toMs) longest = span;
    }
  }
  return violations;
}

/** The logs of the stores: epochs never go back, every line is of a live grant and of its epoch. */
function checkLogs(
  events: readonly Event[],
  attempts: readonly Attempt[],
  exemptions: Exemptions,
): Violation[] {
  const byId = new Map(attempts.map((attempt) => [attempt.id, attempt]));
  const newest = new Map<string, EventOf<"written">>();
  const violations: Violation[] = [];
  const written = events.filter((event) => event.kind === "written")
    .sort((a, b) => a.index - b.index);
  for (const line of written) {
    const before = newest.get(line.store);
    newest.set(line.store, line);
    if (
      before !== undefined && line.epoch < before.epoch &&
      !exemptions.cover(line.t, [line.node, before.node])
    ) {
      violations.push({
        rule: "epoch",
        t: line.t,
        message: `store ${line.store}, line ${line.index}: epoch ${line.epoch} of ${line.node} ` +
          `after epoch ${before.epoch} of ${before.node}`,
      });
    }
    const wrong = wrongWrite(line, byId.get(line.id));
    if (wrong !== null) {
      violations.push({
        rule: "write",
        t: line.t,
        message: `store ${line.store}, line ${line.index}, of ${line.id} on ${line.node}: ${wrong}`,
      });
    }
  }
  return violations;
}

function wrongWrite(line: EventOf<"written">, attempt: Attempt | undefined): string | null {
  const grant = attempt?.grant;
  if (attempt === undefined || !grant) return "written without a grant";
  if (grant.store !== line.store) return `written with a grant for ${grant.store}`;
  if (grant.epoch !== line.epoch) return `written with epoch ${grant.epoch} granted`;
  if (attempt.writes.some((other) => other.index < line.index && other.seq >= line.seq)) {
    return `sequence ${line.seq} out of order`;
  }
  const slackMs = grant.deadlineMs === null ? COARSE_CLOCK_MS : 0;
  if (line.t + slackMs < grant.t) return "written before it was granted";
  const doneMs = line.doneMs ?? line.t;
  const covered = attempt.spans.some((span) =>
    line.t + slackMs >= span.fromMs && doneMs <= span.toMs + slackMs
  );
  return covered ? null : "written when its grant was no longer live";
}

/** From each calm on, every store is granted within the bound, unless the calm ends before it. */
function findUnrecovered(
  events: readonly Event[],
  { stores, recoveryMs, older }: EventOf<"setup">,
  recoveriesMs: number[],
): Violation[] {
  const violations: Violation[] = [];
  const grants = events.filter((event) => event.kind === "grant")
    .filter(({ node }) => !older?.includes(node));
  events.forEach((calm, index) => {
    if (calm.kind !== "calm") return;
    const over = events.slice(index).find(({ kind }) => kind === "disturbed")?.t ?? Infinity;
    for (const store of stores) {
      const granted = grants.find((grant) => grant.store === store && grant.t >= calm.t);
      const tookMs = (granted?.t ?? Infinity) - calm.t;
      if (tookMs <= recoveryMs) {
        if (granted!.t <= over) recoveriesMs.push(tookMs);
      } else if (over - calm.t > recoveryMs) {
        violations.push({
          rule: "stuck",
          t: calm.t,
          message: `store ${store} was not granted within ${recoveryMs} ms after all was healed`,
        });
      }
    }
  });
  return violations;
}

/** Every request has an answer, or its client or its agent went. */
function findUnanswered(events: readonly Event[], attempts: readonly Attempt[]): Violation[] {
  const end = events.at(-1)!.t;
  const killed = events.filter((event) => event.kind === "gone");
  const violations: Violation[] = [];
  for (const { id, ask, grant, refused, endMs } of attempts) {
    if (ask === null || grant !== null || refused !== null || endMs !== null) continue;
    if (killed.some((kill) => id.startsWith(kill.prefix) && kill.t >= ask.t)) continue;
    if (end < ask.t + ask.waitMs + ANSWER_SLACK_MS) continue;
    violations.push({
      rule: "stuck",
      t: ask.t,
      message: `${id} on ${ask.node} asked for store ${ask.store} and had no answer`,
    });
  }
  return violations;
}

function countRefusals(attempts: readonly Attempt[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { refused, lostWhy } of attempts) {
    for (const why of [refused?.why, lostWhy && `lost (${lostWhy.why})`]) {
      if (why) counts[why] = (counts[why] ?? 0) + 1;
    }
  }
  return counts;
}
