/**
 * The failover grace, as the histories show it: whoever takes over from a node that did not close its
 * tenure grants nothing before a grace has passed since that node last proved its hold.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Exemptions } from "./exemptions.ts";
import type { Event, EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

type Granted = Attempt & { readonly grant: EventOf<"grant"> };

/** Grants that came too early after another node's. */
export function checkGraces(
  events: readonly Event[],
  attempts: readonly Attempt[],
  exemptions: Exemptions,
): Violation[] {
  const { graceMs, ttlMs } = events.find((event) => event.kind === "setup")!;
  const closings = new Closings(events, exemptions);
  const violations: Violation[] = [];
  const granted = attempts.filter((attempt): attempt is Granted => attempt.grant !== null)
    .sort((a, b) => a.grant.t - b.grant.t);
  // Of each store and node the grant that was proven last. Of each node, since what is owed to one is
  // not paid by what another, exempt one did in between.
  const last = new Map<string, Map<string, { attempt: Granted; provenMs: number }>>();
  for (const attempt of granted) {
    const { grant, id } = attempt;
    const nodes = last.get(grant.store) ?? new Map();
    last.set(grant.store, nodes);
    for (const { attempt: before, provenMs } of nodes.values()) {
      const { node } = before.grant;
      const tookMs = grant.t - provenMs;
      if (node === grant.node || tookMs >= graceMs) continue;
      if (closings.between(before.grant, grant)) continue;
      if (exemptions.cover(grant.t, [node, grant.node])) continue;
      violations.push({
        rule: "grace",
        t: grant.t,
        message:
          `store ${grant.store}: ${id} on ${grant.node} was granted ${
            tookMs.toFixed(0)
          } ms after ` +
          `${before.id} was last proven on ${node}, which did not close its tenure`,
      });
    }
    const provenMs = provenMsOf(attempt, ttlMs);
    if (provenMs >= (nodes.get(grant.node)?.provenMs ?? -Infinity)) {
      nodes.set(grant.node, { attempt, provenMs });
    }
  }
  return violations;
}

/** Tenures that were closed, and when each began and ended, as their follower saw them. */
class Closings {
  readonly #begun = new Map<string, number>();
  readonly #closed = new Map<string, number>();

  constructor(events: readonly Event[], exemptions: Exemptions) {
    for (const event of events) {
      if (event.kind !== "tenure") continue;
      // An older program notes its own at once, and the follower the agents' some time later: which
      // was first is not known. What the follower notes is in the order of the records.
      if (!event.closed && exemptions.isOlder(event.node)) continue;
      const times = event.closed ? this.#closed : this.#begun;
      if (!times.has(keyOf(event))) times.set(keyOf(event), event.t);
    }
  }

  /** Whether the tenure of the one was closed before that of the other began, where that is known. */
  between(one: EventOf<"grant">, other: EventOf<"grant">): boolean {
    const closedMs = this.#closed.get(keyOf(one)) ?? Infinity;
    return closedMs <= (this.#begun.get(keyOf(other)) ?? Number.MAX_VALUE);
  }
}

function keyOf({ store, node, epoch }: EventOf<"grant"> | EventOf<"tenure">): string {
  return `${store} ${node} ${epoch}`;
}

/** When a holder last proved its hold, at the earliest. */
function provenMsOf({ ask, grant, deadlineMs }: Granted, ttlMs: number): number {
  const latest = ask?.t ?? grant.t;
  // A deadline is at most a TTL after its proof was sent; an agent's, less its margin.
  return deadlineMs === null ? latest : Math.max(latest, deadlineMs - ttlMs);
}
