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
  const closed = new Set(
    events.filter((event) => event.kind === "tenure").filter((tenure) => tenure.closed)
      .map(({ store, node, epoch }) => `${store} ${node} ${epoch}`),
  );
  const last = new Map<string, Granted>();
  const violations: Violation[] = [];
  const granted = attempts.filter((attempt): attempt is Granted => attempt.grant !== null)
    .sort((a, b) => a.grant.t - b.grant.t);
  for (const attempt of granted) {
    const { grant, id } = attempt;
    const before = last.get(grant.store);
    last.set(grant.store, attempt);
    if (before === undefined || before.grant.node === grant.node) continue;
    const { store, node, epoch } = before.grant;
    if (closed.has(`${store} ${node} ${epoch}`)) continue;
    if (exemptions.cover(grant.t, [node, grant.node])) continue;
    const tookMs = grant.t - provenMsOf(before, ttlMs);
    if (tookMs >= graceMs) continue;
    violations.push({
      rule: "grace",
      t: grant.t,
      message: `store ${store}: ${id} on ${grant.node} was granted ${tookMs.toFixed(0)} ms after ` +
        `${before.id} was last proven on ${node}, which did not close its tenure`,
    });
  }
  return violations;
}

/** When a holder last proved its hold, at the earliest. */
function provenMsOf({ ask, grant, deadlineMs }: Granted, ttlMs: number): number {
  const latest = ask?.t ?? grant.t;
  // A deadline is at most a TTL after its proof was sent; an agent's, less its margin.
  return deadlineMs === null ? latest : Math.max(latest, deadlineMs - ttlMs);
}
