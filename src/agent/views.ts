/**
 * Stores as others see them.
 * @module
 */
import type { Holder } from "../lease/errors.ts";
import * as refuse from "../lease/refusals.ts";
import type { LeaseContext } from "../lease/lease_context.ts";
import type { Slot } from "./slot.ts";
import type { TenureRecord } from "../lease/tenure.ts";
import type { Clock } from "../ports/clock.ts";
import type { Coordinator, EntryRead, TenureRead } from "../ports/coordinator.ts";
import type { AgentOptions, Answer, LeaseInfo } from "./types.ts";

/** A store's lease from memory. */
export function infoOf(
  { store, sinceMs }: Slot,
  { node, address }: AgentOptions,
  clock: Clock,
  context: LeaseContext,
): LeaseInfo {
  const nowMs = clock.bootMs();
  const view = store.view(nowMs, context);
  const { state, held } = view;
  if (state === "self") {
    const acquiredMs = sinceMs ?? clock.wallMs() - (nowMs - view.acquiredAtMs!);
    const since = new Date(acquiredMs).toISOString();
    return { store: store.code, state, held, node, address, epoch: view.epoch, since };
  }
  return withHolder(store.code, view.holder);
}

function withHolder(store: string, holder: Holder | null): LeaseInfo {
  if (holder === null) {
    const nobody = { node: null, address: null, epoch: null, since: null };
    return { store, state: "free", held: false, ...nobody };
  }
  const { node, address, epoch, since } = holder;
  return { store, state: "other", held: false, node, address, epoch, since };
}

/**
 * Asks the coordinator who holds a store: its entry, and the tenure record that explains it.
 * `onStranger` is told when that is a program which keeps no tenure records.
 */
export function lookUp(
  store: string,
  { self, coordinator, onStranger }: {
    self: AgentOptions;
    coordinator: Coordinator;
    onStranger: () => void;
  },
  answer: Answer<LeaseInfo>,
): void {
  const reads: { entry?: EntryRead; tenure?: TenureRead } = {};
  let failed = false;
  const fail = (reason: string) => {
    if (failed) return;
    failed = true;
    answer.fail(refuse.cannotTell(store, reason));
  };
  const finish = () => {
    const { entry, tenure } = reads;
    if (failed || entry === undefined || tenure === undefined) return;
    if (entry.kind === "entry" && entry.incarnation === null) onStranger();
    answer.ok(explain(store, self, entry, tenure));
  };
  coordinator.readEntry(store, (outcome) => {
    if (outcome.kind !== "ok") return fail(reasonOf(outcome));
    reads.entry = outcome.value;
    finish();
  });
  coordinator.readTenure(store, (outcome) => {
    if (outcome.kind !== "ok") return fail(reasonOf(outcome));
    reads.tenure = outcome.value;
    finish();
  });
}

function reasonOf(outcome: { kind: "conflict" } | { kind: "unknown"; reason: string }): string {
  return outcome.kind === "unknown" ? outcome.reason : "conflicting answers";
}

function explain(
  store: string,
  self: AgentOptions,
  entry: EntryRead,
  { record }: TenureRead,
): LeaseInfo {
  if (entry.kind !== "entry") return withHolder(store, null);
  const theirs = record !== null && record.incarnation === entry.incarnation ? record : null;
  const info = withHolder(store, {
    node: entry.node,
    address: entry.address,
    epoch: theirs?.epoch ?? null,
    since: theirs?.acquired_at ?? null,
  });
  return entry.incarnation === self.incarnation ? { ...info, state: "self" } : info;
}

/** Asks the coordinator for the kept tenures of a store, newest first. */
export function readHistory(
  store: string,
  coordinator: Coordinator,
  answer: Answer<TenureRecord[]>,
): void {
  coordinator.readHistory(store, (outcome) => {
    if (outcome.kind === "ok") answer.ok(outcome.value);
    else answer.fail(refuse.cannotTell(store, reasonOf(outcome), "held"));
  });
}

/** The codes of one page, and where the next one begins: null after the last. */
export function pageOf(
  all: Iterable<string>,
  { prefix = "", after = "", limit }: { prefix?: string; after?: string; limit: number },
): { codes: string[]; next: string | null } {
  const matching: string[] = [];
  for (const code of all) if (code > after && code.startsWith(prefix)) matching.push(code);
  matching.sort();
  const codes = matching.slice(0, limit);
  return { codes, next: matching.length > limit ? codes[codes.length - 1] : null };
}
