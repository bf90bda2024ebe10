/**
 * Whether the holder that a refusal names was one, and had not been displaced for long.
 * @module
 */
import { type Causes, FOLLOWER_LATE_MS } from "./causes.ts";
import type { Exemptions } from "./exemptions.ts";
import type { EventOf } from "./history.ts";
import { type Attempt, validityMs } from "./sections.ts";

/** How long a node may name a holder that has been displaced: until it knows that it is cut off. */
const STALE_HOLDER_MS = 8_000;

/** Faults after which an entry names a node that did not write it. */
const FORGERIES = ["overwrite entry", "replace entry"];

/** What it is judged by. */
export interface Holders {
  readonly setup: EventOf<"setup">;
  readonly attempts: readonly Attempt[];
  readonly tenures: readonly EventOf<"tenure">[];
  readonly causes: Causes;
  readonly exemptions: Exemptions;
}

/** What is wrong with a refusal that says who holds the store; null if nothing is. */
export function wrongHolder(
  { node, store, holder, t }: EventOf<"refused">,
  askedMs: number,
  { tenures, attempts, setup, causes, exemptions }: Holders,
): string | null {
  const here = { node, store };
  // Servers that forgot show entries that were long gone.
  if (exemptions.regressions.some((each) => each.t <= t + FOLLOWER_LATE_MS)) return null;
  if (!holder) {
    // It met a conflict, and could not read whose.
    const excused = causes.explain("lost", here, askedMs, t);
    return excused ? null : `not_holder on ${node}, which names nobody`;
  }
  const disturbed = causes.around(here, askedMs, t);
  if (disturbed.some(({ name }) => FORGERIES.includes(name))) return null;
  if (holder.node === node) return `not_holder on ${node}, which names itself`;
  const grants = attempts.map(({ grant }) => grant).filter((grant) => grant !== null)
    .filter((grant) => grant.store === store);
  const theirs = [...tenures.filter((tenure) => tenure.store === store), ...grants]
    .filter((tenure) => tenure.node === holder.node);
  const { epoch } = holder;
  if (epoch === null) {
    if (theirs.length === 0) return `not_holder names ${holder.node}, which never held ${store}`;
    // An entry is there before its record, and without one where its writer is in trouble.
    const there = { node: holder.node, store };
    const early = theirs.every((tenure) => tenure.t > causes.notedByMs(t));
    if (early && causes.around(there, t, t).length === 0) {
      return `not_holder names ${holder.node}, which held ${store} only later`;
    }
    // Without an epoch, by time: an entry is gone a TTL after its last renewal.
    const lastMs = Math.max(
      ...theirs.map(({ t }) => t),
      ...endsOf(holder.node, store, attempts),
      // What it did just before it was killed, it could not note.
      ...causes.momentsOf(holder.node),
    );
    const since = grants.find((grant) =>
      grant.node !== holder.node && grant.t > lastMs + setup.ttlMs && grant.t < t - STALE_HOLDER_MS
    );
    return since === undefined || lastMs > t ? null : `not_holder names ${holder.node}, which ` +
      `${since.node} had displaced ${(t - since.t).toFixed(0)} ms ago`;
  }
  const known = theirs.filter((tenure) => tenure.epoch === epoch).map((tenure) => tenure.t);
  if (known.length === 0) {
    return `not_holder names ${holder.node} with epoch ${epoch}, which nobody ever had`;
  }
  // An epoch is known from the record of its tenure.
  const laterMs = Math.min(...known) - t;
  if (t + laterMs > causes.notedByMs(t)) {
    return `not_holder names ${holder.node} with epoch ${epoch}, which it had only ` +
      `${laterMs.toFixed(0)} ms later`;
  }
  const before = provenLater(epoch, t, { tenures, attempts, setup, causes, exemptions });
  if (before !== null) {
    return `not_holder names ${holder.node} with epoch ${epoch}, before the one of ${before.id} ` +
      `was over, ${before.grant!.epoch}`;
  }
  const closed = theirs.find((tenure) =>
    tenure.kind === "tenure" && tenure.closed && tenure.epoch === epoch
  );
  // Its entry goes next, unless something is wrong.
  if (closed && closed.t < askedMs - STALE_HOLDER_MS && !causes.displaced(store, askedMs, t)) {
    return `not_holder names ${holder.node} with epoch ${epoch}, which it had given up ` +
      `${(t - closed.t).toFixed(0)} ms before`;
  }
  const newer = grants.find((grant) => grant.epoch > epoch && grant.t < t - STALE_HOLDER_MS);
  return newer === undefined
    ? null
    : `not_holder names ${holder.node} with epoch ${epoch}, though ${newer.node} had epoch ` +
      `${newer.epoch} ${(t - newer.t).toFixed(0)} ms before`;
}

/**
 * A grant that was proven after a time, in a tenure that another one followed which began before an
 * epoch: that one was not there at that time. Epochs are revisions of one stream, for all stores.
 */
function provenLater(
  epoch: number,
  t: number,
  { tenures, attempts, setup, causes, exemptions }: Holders,
): Attempt | null {
  if (causes.mayForget(t, Infinity) || exemptions.regressions.length > 0) return null;
  return attempts.find(({ ask, grant, deadlineMs }) => {
    if (grant === null || ask === null || grant.epoch >= epoch) return false;
    const provenMs = deadlineMs === null ? ask.t : deadlineMs - validityMs(setup.ttlMs, false);
    return Math.max(ask.t, provenMs) > t &&
      tenures.some((tenure) =>
        tenure.store === grant.store && tenure.epoch > grant.epoch && tenure.epoch <= epoch
      );
  }) ?? null;
}

/** Whether another node had a tenure on the store in a time span, or shortly before. */
export function heldElsewhere(
  { node, store }: { readonly node: string; readonly store: string },
  [fromMs, toMs]: readonly [number, number],
  { tenures }: Holders,
): boolean {
  const ofStore = tenures.filter((tenure) => tenure.store === store);
  return ofStore.some((tenure) => {
    if (tenure.node === node || tenure.closed || tenure.t > toMs + FOLLOWER_LATE_MS) return false;
    // It ends when it is closed, or when somebody else's begins.
    const end = ofStore.find((other) =>
      other.t > tenure.t &&
      (other.closed ? other.epoch === tenure.epoch : other.epoch > tenure.epoch)
    );
    return (end?.t ?? Infinity) >= fromMs - STALE_HOLDER_MS;
  });
}

/** When a node's grants on a store ended. */
export function endsOf(node: string, store: string, attempts: readonly Attempt[]): number[] {
  return attempts.filter(({ grant }) => grant?.node === node && grant.store === store)
    .flatMap(({ spans }) => spans.map(({ toMs }) => toMs));
}
