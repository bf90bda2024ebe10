/**
 * A coordinator that lost its past. Revisions only grow, so a tenure that began later in a lower epoch, or in
 * the same, is a proof that servers forgot what they had acknowledged, as nats-servers do that elect a
 * replica which lags behind (docs/faults.md, "What this found"). An agent sees that by its own disk or by the
 * tenure records, and refuses: one that grants in such a tenure is no exception. The older program looks at
 * neither, and writes; nobody could keep it from that.
 * @module
 */
import type { Event, EventOf } from "./history.ts";

/** A tenure of an older program that began in a lower epoch than one before, or in the same. */
export interface Regression {
  readonly store: string;
  readonly node: string;
  readonly epoch: number;
  readonly t: number;
  /** The epoch that was forgotten, and whose it was. */
  readonly before: { readonly node: string; readonly epoch: number };
}

/** Faults after which servers may elect one that does not know all, or come back without it. */
const OF_SERVERS = /^(?!.*agent).*(server|leader|cluster)/;

/** The regressions that a history proves, each after a fault of a server that may have caused it. */
export function findRegressions(
  events: readonly Event[],
  { older = [] }: EventOf<"setup">,
): Regression[] {
  const newest = new Map<string, { node: string; epoch: number }>();
  const found: Regression[] = [];
  let touched = false;
  for (const event of events) {
    if (event.kind === "fault") touched ||= OF_SERVERS.test(event.name);
    if (event.kind !== "tenure" && event.kind !== "grant") continue;
    const { store, node, epoch, t } = event;
    const before = newest.get(store);
    // An epoch of 0 says that the older program does not know it yet.
    const begins = event.kind === "tenure" && !event.closed && epoch > 0;
    const back = before !== undefined && epoch <= before.epoch && node !== before.node;
    if (begins && back && touched && older.includes(node)) {
      found.push({ store, node, epoch, t, before });
    }
    if (before === undefined || epoch > before.epoch) newest.set(store, { node, epoch });
  }
  return found;
}

/** What a regression is told as. */
export function describe({ store, node, epoch, before }: Regression): string {
  return `store ${store}: ${node} was given epoch ${epoch} after epoch ${before.epoch} of ` +
    `${before.node}: the servers forgot what they had acknowledged`;
}
