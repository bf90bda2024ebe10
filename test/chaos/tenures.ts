/**
 * Tenures: each has an epoch of its own, greater than all before it; its record is there before its
 * first grant; and when it is closed or another has begun, nothing is granted in it any more.
 * @module
 */
import type { Causes } from "./causes.ts";
import type { Violation } from "./checker.ts";
import type { Exemptions } from "./exemptions.ts";
import type { Event, EventOf } from "./history.ts";

type Tenure = EventOf<"tenure">;
type Grant = EventOf<"grant">;

/** What it is judged by. */
export interface TenureEvidence {
  readonly exemptions: Exemptions;
  readonly causes: Causes;
}

/** What is wrong with epochs, and with the records of tenures. */
export function checkTenures(events: readonly Event[], evidence: TenureEvidence): Violation[] {
  const { exemptions } = evidence;
  // Of an older program an epoch of 0 says that it does not know.
  const known = events.filter((event): event is Tenure | Grant =>
    event.kind === "grant" || (event.kind === "tenure" && event.epoch > 0)
  );
  const ofAgents = known.filter(({ node }) => !exemptions.isOlder(node));
  return [
    ...findShared(known, exemptions),
    ...findReturns(ofAgents),
    ...checkGrants(events, ofAgents, evidence),
  ];
}

/** Epochs that two nodes had. */
function findShared(known: readonly (Tenure | Grant)[], exemptions: Exemptions): Violation[] {
  const owners = new Map<string, string>();
  return known.flatMap(({ store, epoch, node, t }) => {
    const key = `${store} ${epoch}`;
    const owner = owners.get(key) ?? node;
    owners.set(key, owner);
    if (owner === node || exemptions.cover(t, [owner, node])) return [];
    if (exemptions.isBehind({ store, node, epoch })) return [];
    return [epochViolation(t, `store ${store}: ${node} had epoch ${epoch}, which was ${owner}'s`)];
  });
}

/**
 * Records, and grants, that go back among their like: of both the order is known. A grant that was
 * over when its client heard of it comes late, and gives it nothing.
 */
function findReturns(ofAgents: readonly (Tenure | Grant)[]): Violation[] {
  const newest = new Map<string, Tenure | Grant>();
  return ofAgents.flatMap((event) => {
    if (event.kind === "grant" && event.deadlineMs !== null && event.deadlineMs <= event.t) {
      return [];
    }
    const key = `${event.kind} ${event.store}`;
    const before = newest.get(key);
    if (before === undefined || event.epoch >= before.epoch) newest.set(key, event);
    else {
      const what = event.kind === "grant" ? `${event.id} was granted` : "a tenure was recorded";
      const message = `store ${event.store}: ${what} on ${event.node} in epoch ${event.epoch}, ` +
        `after epoch ${before.epoch} of ${before.node}`;
      return [epochViolation(event.t, message)];
    }
    return [];
  });
}

/** Grants of agents whose tenure had no record, had been closed, or had been followed by another. */
function checkGrants(
  events: readonly Event[],
  ofAgents: readonly (Tenure | Grant)[],
  { causes }: TenureEvidence,
): Violation[] {
  const records = ofAgents.filter((event) => event.kind === "tenure");
  const askedMs = new Map(
    events.filter((event) => event.kind === "ask").map(({ id, t }) => [id, t]),
  );
  const { t: lastMs } = events.at(-1)!;
  return ofAgents.filter((event) => event.kind === "grant").flatMap((grant) => {
    const ofStore = records.filter(({ store }) => store === grant.store);
    const message = unrecorded(grant, ofStore, { causes, lastMs }) ??
      ended(grant, askedMs.get(grant.id) ?? grant.t, ofStore);
    if (message === null) return [];
    const where = `store ${grant.store}: ${grant.id} on ${grant.node}`;
    return [{ rule: "tenure", t: grant.t, message: `${where} ${message}` } as const];
  });
}

function unrecorded(
  grant: Grant,
  ofStore: readonly Tenure[],
  { causes, lastMs }: { readonly causes: Causes; readonly lastMs: number },
): string | null {
  const record = ofStore.find(({ node, epoch }) => node === grant.node && epoch === grant.epoch);
  const dueMs = causes.notedByMs(grant.t);
  if (record !== undefined && record.t <= dueMs) return null;
  if (record !== undefined) {
    return `was granted ${(record.t - grant.t).toFixed(0)} ms before its tenure was recorded`;
  }
  if (causes.mayForget(grant.t, dueMs)) return null;
  // Of a history that breaks off before, nothing is known.
  return dueMs > lastMs && !causes.complete ? null : "was granted in a tenure without a record";
}

/** What is noted was so before: a grant that was asked for later, cannot have been proven. */
function ended(grant: Grant, askedMs: number, ofStore: readonly Tenure[]): string | null {
  for (const { t, node, epoch, closed } of ofStore) {
    if (t > askedMs) continue;
    const agoMs = (askedMs - t).toFixed(0);
    if (closed && node === grant.node && epoch === grant.epoch) {
      return `was granted in a tenure that had been closed for ${agoMs} ms when it asked`;
    }
    if (epoch > grant.epoch) {
      return `was granted in epoch ${grant.epoch}, ${agoMs} ms after ${node} had epoch ${epoch}`;
    }
  }
  return null;
}

function epochViolation(t: number, message: string): Violation {
  return { rule: "epoch", t, message };
}
