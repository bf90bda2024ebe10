/**
 * The failover grace, as the histories show it: whoever takes over from a node that did not close its
 * tenure grants nothing before a grace has passed since that node last proved its hold.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Event, EventOf } from "./history.ts";
import type { Attempt } from "./sections.ts";

type Granted = Attempt & { readonly grant: EventOf<"grant"> };

/** Grants that came too early after another node's. */
export function checkGraces(
  events: readonly Event[],
  attempts: readonly Attempt[],
  { graceMs }: EventOf<"setup">,
): Violation[] {
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
    // Its proof was sent after it was asked for, and the other node's acquisition came after that.
    const provenMs = before.ask?.t ?? before.grant.t;
    const tookMs = grant.t - provenMs;
    if (tookMs >= graceMs) continue;
    violations.push({
      rule: "grace",
      t: grant.t,
      message: `store ${store}: ${id} on ${grant.node} was granted ${tookMs.toFixed(0)} ms after ` +
        `${before.id} was asked for on ${node}, which did not close its tenure`,
    });
  }
  return violations;
}
