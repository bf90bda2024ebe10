/**
 * Whether refusals and losses were true: each kind needs its reason in the history.
 * @module
 */
import { wasBusy } from "./busy.ts";
import { type Causes, FOLLOWER_LATE_MS } from "./causes.ts";
import type { Violation } from "./checker.ts";
import type { Event, EventOf } from "./history.ts";
import { endsOf, heldElsewhere, type Holders, wrongHolder } from "./holders.ts";
import type { Attempt } from "./sections.ts";

/** A timer may be early by the resolution of clocks and rounding. */
const EARLY_MS = 20;

/** Faults after which an agent finds grants of its earlier life. */
const RESTARTS = [
  "kill agent",
  "kill and restart agent",
  "kill host",
  "stop agent",
  "upgrade agent",
];

/** How a grant may come to its end against its client's will; `entry` by the older program. */
const LOSSES: Readonly<Record<"lost" | "unverified", readonly string[]>> = {
  lost: ["not_holder", "unavailable", "closed", "unverified", "deadline", "entry"],
  unverified: ["lost"],
};

/** Every refusal and loss without a reason. */
export function checkRefusals(
  events: readonly Event[],
  attempts: readonly Attempt[],
  evidenceOfRun: Pick<Holders, "setup" | "causes" | "exemptions">,
): Violation[] {
  const evidence: Holders = {
    ...evidenceOfRun,
    attempts,
    tenures: events.filter((event) => event.kind === "tenure"),
  };
  const violations: Violation[] = [];
  const found = (t: number, id: string, message: string | null) => {
    if (message !== null) violations.push({ rule: "refusal", t, message: `${id}: ${message}` });
  };
  for (const attempt of attempts) {
    const { id, refused, lostWhy } = attempt;
    if (refused !== null) found(refused.t, id, wrongRefusal(attempt, refused, evidence));
    if (lostWhy !== null) found(lostWhy.t, id, wrongLoss(attempt, lostWhy, evidence));
  }
  return violations;
}

function wrongRefusal(
  attempt: Attempt,
  refused: EventOf<"refused">,
  evidence: Holders,
): string | null {
  const fromMs = attempt.ask?.t ?? refused.t;
  const { node, why, t } = refused;
  const unless = (excused: boolean, wrong: string) =>
    excused ? null : `${why} on ${node}, ${wrong}`;
  const explains = (effect: Parameters<Causes["explain"]>[0]) =>
    evidence.causes.explain(effect, refused, fromMs, t);
  switch (why) {
    case "unavailable":
      return unless(explains("unavailable"), "and nothing was wrong");
    case "gone":
      return unless(explains("gone"), "and nothing was wrong");
    case "exit 69": // One or the other.
      return unless(explains("unavailable") || explains("gone"), "and nothing was wrong");
    case "exit 79":
      return unless(explains("lost"), "and nothing was wrong");
    case "draining":
      return unless(explains("draining"), "which nobody stopped");
    case "not_holder":
      return wrongHolder(refused, fromMs, evidence);
    case "grace":
      return wrongGrace(fromMs, refused, evidence);
    case "busy":
      return unless(wasBusy(attempt, refused, evidence), "and nobody else was there");
    case "exit 76":
    case "stale_epoch":
      return unless(wasStale(refused, evidence), "and nobody else had a newer epoch");
    case "exit 75": // One of busy, draining, grace, and not_holder.
      return unless(
        wasBusy(attempt, refused, evidence) || explains("draining") ||
          mayOweGrace(refused, fromMs, evidence) ||
          heldElsewhere(refused, [fromMs, t], evidence),
        "and nobody else was there",
      );
    default:
      return `refused with ${why}, which nothing in this run should cause: ${
        refused.message ?? ""
      }`;
  }
}

/**
 * Whether somebody may have been displaced: a lease was lost somewhere, or an older program had the
 * store, which leaves no record that it let go.
 */
function mayOweGrace(
  { store, t }: EventOf<"refused">,
  askedMs: number,
  { setup, tenures, attempts, causes }: Holders,
): boolean {
  if (causes.displaced(store, askedMs, t)) return true;
  const older = setup.older ?? [];
  const heldMs = [
    ...tenures.filter((tenure) => tenure.store === store && older.includes(tenure.node))
      .map((tenure) => tenure.t),
    ...older.flatMap((node) => endsOf(node, store, attempts)),
  ];
  // Its entry may have to age out first; then comes the grace.
  const sinceMs = askedMs - 2 * setup.ttlMs - setup.graceMs;
  return heldMs.some((heldMs) => heldMs >= sinceMs && heldMs <= t);
}

/** A grace is owed to somebody, has a bound, and nothing is granted before it is over. */
function wrongGrace(
  askedMs: number,
  refused: EventOf<"refused">,
  evidence: Holders,
): string | null {
  const { retryAfterMs, node, store, t } = refused;
  const { setup, attempts, causes } = evidence;
  if (!(retryAfterMs! > 0 && retryAfterMs! <= setup.graceMs)) {
    return `grace on ${node} with ${retryAfterMs} ms to wait, of at most ${setup.graceMs}`;
  }
  if (!mayOweGrace(refused, askedMs, evidence)) {
    return `grace on ${node}, and nobody was displaced`;
  }
  // An agent that was restarted waits for what it had granted before, which may end sooner.
  const restarted = causes.around({ node, store }, askedMs, t)
    .some(({ name, targets }) => RESTARTS.includes(name) && targets.includes(node));
  if (restarted) return null;
  const early = attempts.find(({ grant }) =>
    grant?.node === node && grant.store === store && grant.t > askedMs &&
    // Counted from the question: the answer was on its way for a while.
    grant.t < askedMs + retryAfterMs! - EARLY_MS
  );
  return early === undefined
    ? null
    : `grace on ${node} for ${retryAfterMs} ms, but ${early.id} was granted after ` +
      `${(early.grant!.t - askedMs).toFixed(0)} ms`;
}

/**
 * Whether a lock file could have a newer epoch than the node's lease: it had one, and by then somebody
 * who writes to that file had a greater one. Where each node has files of its own, that is itself.
 */
function wasStale({ node, store, t }: EventOf<"refused">, evidence: Holders): boolean {
  const { setup, tenures, attempts, exemptions } = evidence;
  // Servers that forgot, forgot of all stores: the record that is newer than ours may be our own.
  if (exemptions.regressions.some((each) => each.t <= t)) return true;
  const grants = attempts.map(({ grant }) => grant).filter((grant) => grant !== null);
  const known = [...tenures, ...grants].filter((each) =>
    each.store === store && each.t <= t + FOLLOWER_LATE_MS && !setup.older?.includes(each.node)
  );
  const own = known.filter((each) => each.node === node).sort((a, b) => a.t - b.t).at(-1);
  return own !== undefined &&
    known.some((each) =>
      each.epoch > own.epoch && (setup.locks === "shared" || each.node === node)
    );
}

function wrongLoss(
  { id, grant }: Attempt,
  lost: EventOf<"lost"> | EventOf<"unverified">,
  { attempts, causes }: Holders,
): string | null {
  if (grant === null) return null;
  const { node, store, epoch } = grant;
  if (lost.why === "no_token") return `${node} did not know the token it had granted`;
  if (!LOSSES[lost.kind].includes(lost.why)) {
    return `${lost.kind} (${lost.why}) on ${node}, which nothing in this run should cause`;
  }
  const effect = lost.why === "closed" ? "gone" : "lost";
  if (!causes.explain(effect, grant, lost.t, lost.t)) {
    return `lost (${lost.why}) on ${node}, and nothing was wrong`;
  }
  // The client gave up by itself: it had no proof, and its lease may have gone on.
  if (["closed", "unverified", "deadline"].includes(lost.why)) return null;
  // The tenure is over: whatever comes later is a new one (consul#4902).
  const revived = attempts.find((other) =>
    other.grant !== null && other.id !== id && other.grant.store === store &&
    other.grant.node === node && other.grant.epoch === epoch && other.grant.t > lost.t
  );
  return revived === undefined
    ? null
    : `lost (${lost.why}) on ${node}, but ${revived.id} was granted later in the same epoch`;
}
