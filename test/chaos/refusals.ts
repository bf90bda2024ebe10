/**
 * Whether refusals and losses were true: each kind needs its reason in the history.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Event, EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

/**
 * How long after a fault was healed it still explains what a node says: a dead connection is found
 * after 6 s, an election takes 4 to 9 s, a dial up to 1.5 s.
 */
const AFTERMATH_MS = 18_000;

/** How long a node may name a holder that has been displaced: until it knows that it is cut off. */
const STALE_HOLDER_MS = 8_000;

/** A timer may be early by the resolution of clocks and rounding. */
const EARLY_MS = 20;

/** Faults after which an agent rightly says that it gives its leases up. */
const DRAINS = ["stop agent", "step down", "upgrade agent"];

/** Faults after which an agent finds grants of its earlier life. */
const RESTARTS = [
  "kill agent",
  "kill and restart agent",
  "kill host",
  "stop agent",
  "upgrade agent",
];

/** Faults after which an entry names a node that did not write it. */
const FORGERIES = ["overwrite entry", "replace entry"];

type FaultSpan = EventOf<"fault"> & { readonly healedMs: number };

interface Evidence {
  readonly setup: EventOf<"setup">;
  readonly faults: readonly FaultSpan[];
  readonly attempts: readonly Attempt[];
  readonly tenures: readonly EventOf<"tenure">[];
}

/** Every refusal and loss without a reason. */
export function checkRefusals(
  events: readonly Event[],
  attempts: readonly Attempt[],
  setup: EventOf<"setup">,
): Violation[] {
  const evidence: Evidence = {
    setup,
    attempts,
    faults: faultSpans(events),
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

/** Faults with their ends; one that is never healed lasts for the moment it was injected in. */
function faultSpans(events: readonly Event[]): FaultSpan[] {
  const healed = new Map<number, number>();
  for (const event of events) if (event.kind === "healed") healed.set(event.fault, event.t);
  return events.filter((event) => event.kind === "fault")
    .map((fault) => ({ ...fault, healedMs: healed.get(fault.fault) ?? fault.t }));
}

function wrongRefusal(
  attempt: Attempt,
  refused: EventOf<"refused">,
  evidence: Evidence,
): string | null {
  const fromMs = attempt.ask?.t ?? refused.t;
  const { node, store, why } = refused;
  const disturbed = faultsAround(evidence, fromMs, refused.t);
  switch (why) {
    case "unavailable":
      return disturbed.length > 0 ? null : `unavailable on ${node}, and nothing was wrong`;
    case "gone":
    case "exit 69":
    case "exit 79":
      return disturbed.length > 0 ? null : `${why} on ${node}, and nothing was wrong`;
    case "draining":
      return disturbed.some((fault) => DRAINS.includes(fault.name) && fault.targets.includes(node))
        ? null
        : `draining on ${node}, which nobody stopped`;
    case "not_holder":
      return wrongHolder(refused, disturbed, evidence);
    case "grace":
      return wrongGrace(fromMs, refused, disturbed, evidence);
    case "busy":
      return somebodyElse(attempt, refused, evidence)
        ? null
        : `busy on ${node}, and nobody else was there`;
    case "stale_epoch":
      return evidence.attempts.some(({ grant }) =>
          grant !== null && grant.store === store && grant.node !== node &&
          grant.t <= refused.t && grant.t >= fromMs - AFTERMATH_MS
        )
        ? null
        : `stale_epoch on ${node}, and nobody else had a newer epoch`;
    case "exit 75":
      return null; // One of several kinds, each checked where a client of the socket is told it.
    default:
      return `refused with ${why}, which nothing in this run should cause: ${
        refused.message ?? ""
      }`;
  }
}

/** Faults that were there, or whose aftermath was, in a time span. The start of the run is one. */
function faultsAround({ faults, setup }: Evidence, fromMs: number, toMs: number): FaultSpan[] {
  const start: FaultSpan = {
    kind: "fault",
    t: setup.t,
    healedMs: setup.t,
    fault: 0,
    name: "start",
    targets: [...setup.nodes],
  };
  return [start, ...faults].filter((fault) =>
    fault.t <= toMs && Math.max(fault.healedMs, fault.t) + AFTERMATH_MS >= fromMs
  );
}

function wrongHolder(
  { node, store, holder, t }: EventOf<"refused">,
  disturbed: readonly FaultSpan[],
  { tenures, attempts, setup, faults }: Evidence,
): string | null {
  if (!holder) {
    return disturbed.length > 0 ? null : `not_holder on ${node}, which names nobody`;
  }
  if (disturbed.some(({ name }) => FORGERIES.includes(name))) return null;
  if (holder.node === node) return `not_holder on ${node}, which names itself`;
  const grants = attempts.map(({ grant }) => grant).filter((grant) => grant !== null)
    .filter((grant) => grant.store === store);
  const theirs = [...tenures.filter((tenure) => tenure.store === store), ...grants]
    .filter((tenure) => tenure.node === holder.node);
  const { epoch } = holder;
  if (epoch === null) {
    if (theirs.length === 0) return `not_holder names ${holder.node}, which never held ${store}`;
    // Without an epoch, by time: an entry is gone a TTL after its last renewal.
    const lastMs = Math.max(
      ...theirs.map(({ t }) => t),
      ...ends(holder.node, store, attempts),
      // What it did just before it was killed, it could not note.
      ...faults.filter(({ targets }) => targets.includes(holder.node)).map(({ t }) => t),
    );
    const since = grants.find((grant) =>
      grant.node !== holder.node && grant.t > lastMs + setup.ttlMs && grant.t < t - STALE_HOLDER_MS
    );
    return since === undefined || lastMs > t ? null : `not_holder names ${holder.node}, which ` +
      `${since.node} had displaced ${(t - since.t).toFixed(0)} ms ago`;
  }
  if (!theirs.some((tenure) => tenure.epoch === epoch)) {
    return `not_holder names ${holder.node} with epoch ${epoch}, which nobody ever had`;
  }
  const newer = grants.find((grant) => grant.epoch > epoch && grant.t < t - STALE_HOLDER_MS);
  return newer === undefined
    ? null
    : `not_holder names ${holder.node} with epoch ${epoch}, though ${newer.node} had epoch ` +
      `${newer.epoch} ${(t - newer.t).toFixed(0)} ms before`;
}

/** When a node's grants on a store ended. */
function ends(node: string, store: string, attempts: readonly Attempt[]): number[] {
  return attempts.filter(({ grant }) => grant?.node === node && grant.store === store)
    .flatMap(({ spans }) => spans.map(({ toMs }) => toMs));
}

/** A grace has a bound, and nothing is granted before it is over. */
function wrongGrace(
  askedMs: number,
  { retryAfterMs, node, store }: EventOf<"refused">,
  disturbed: readonly FaultSpan[],
  { setup, attempts }: Evidence,
): string | null {
  if (!(retryAfterMs! > 0 && retryAfterMs! <= setup.graceMs)) {
    return `grace on ${node} with ${retryAfterMs} ms to wait, of at most ${setup.graceMs}`;
  }
  // An agent that was restarted waits for what it had granted before, which may end sooner.
  const restarted = disturbed.some(({ name, targets }) =>
    RESTARTS.includes(name) && targets.includes(node)
  );
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

/** Whether another request was waiting or granted on the host (with shared locks: on any). */
function somebodyElse(
  attempt: Attempt,
  { node, store, t }: EventOf<"refused">,
  { attempts, setup }: Evidence,
): boolean {
  const fromMs = attempt.ask?.t ?? t;
  return attempts.some((other) => {
    const otherNode = other.ask?.node ?? other.grant?.node;
    const otherStore = other.ask?.store ?? other.grant?.store;
    if (other.id === attempt.id || otherStore !== store) return false;
    if (setup.locks === "own" && otherNode !== node) return false;
    const otherFromMs = other.ask?.t ?? other.grant!.t;
    const ends = [other.refused?.t, other.endMs, ...other.spans.map(({ toMs }) => toMs)]
      .filter((end) => end !== undefined && end !== null);
    // What ended still frees its lock: a command that was killed, an agent that reads a release.
    const otherToMs = (ends.length === 0 ? Infinity : Math.max(...ends)) + setup.ttlMs;
    return otherFromMs <= t && otherToMs >= fromMs;
  });
}

function wrongLoss(
  { id, grant }: Attempt,
  lost: { readonly t: number; readonly why: string },
  evidence: Evidence,
): string | null {
  if (grant === null) return null;
  const { node, store, epoch } = grant;
  if (lost.why === "no_token") return `${node} did not know the token it had granted`;
  if (faultsAround(evidence, lost.t, lost.t).length === 0) {
    return `lost (${lost.why}) on ${node}, and nothing was wrong`;
  }
  // The client gave up by itself: it had no proof, and its lease may have gone on.
  if (["closed", "unverified", "deadline"].includes(lost.why)) return null;
  // The tenure is over: whatever comes later is a new one (consul#4902).
  const revived = evidence.attempts.find((other) =>
    other.grant !== null && other.id !== id && other.grant.store === store &&
    other.grant.node === node && other.grant.epoch === epoch && other.grant.t > lost.t
  );
  return revived === undefined
    ? null
    : `lost (${lost.why}) on ${node}, but ${revived.id} was granted later in the same epoch`;
}
