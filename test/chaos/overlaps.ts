/**
 * Two grants of one store live at one time: by what the clients were told, or by what they wrote.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Exemptions } from "./exemptions.ts";
import type { Attempt, Span } from "./sections.ts";

type GrantSpan = Span & { readonly id: string; readonly node: string };

/** Every two grants that were live at once, and not exempt. */
export function findOverlaps(attempts: readonly Attempt[], exemptions: Exemptions): Violation[] {
  const byStore = new Map<string, GrantSpan[]>();
  for (const { id, grant, spans } of attempts) {
    if (grant === null) continue;
    const list = byStore.get(grant.store) ?? [];
    byStore.set(grant.store, list);
    for (const span of spans) list.push({ id, node: grant.node, ...span });
  }
  return [...byStore].flatMap(([store, spans]) => overlapsOf(store, spans, exemptions));
}

function overlapsOf(store: string, spans: GrantSpan[], exemptions: Exemptions): Violation[] {
  const violations: Violation[] = [];
  // All that are live, not the longest alone: that one may be exempt, and hide another that is not.
  let live: GrantSpan[] = [];
  for (const span of spans.sort((a, b) => a.fromMs - b.fromMs)) {
    live = live.filter(({ toMs }) => toMs > span.fromMs);
    for (const other of live) {
      if (other.id === span.id) continue;
      if (exemptions.cover(span.fromMs, [span.node, other.node])) continue;
      violations.push({
        rule: "overlap",
        t: span.fromMs,
        message: `store ${store}: ${span.id} on ${span.node} was granted while ${other.id} on ` +
          `${other.node} was live for another ${(other.toMs - span.fromMs).toFixed(1)} ms`,
      });
    }
    live.push(span);
  }
  return violations;
}
