/**
 * What the contract's own rules cannot exclude where an older program shares the fleet: it looks at no
 * tenure record and no disk. When an entry is taken away before its time, it may be granted while an
 * agent is still live, or an agent that never saw its entry while it is (docs/safety.md, "The older
 * program"). Between two agents nothing is exempt, ever.
 * @module
 */
import type { Event, EventOf } from "./history.ts";
import { findRegressions, type Regression } from "./regressions.ts";

/** Faults that take entries away before their time, or may. */
const TAKING = [
  "delete entry",
  "overwrite entry",
  "replace entry",
  "delete bucket",
  "recreate bucket",
  "step server's clock",
  "power failure of a server",
  "power failure of the leader",
  "power failure of all servers",
];

/**
 * An operator's command without an answer may still be carried out, and a server looks for entries that
 * expired by its new clock, so much later, in milliseconds.
 */
const LATE_MS = 5_000;

/** When an older program is exempt from what agents owe. */
export class Exemptions {
  readonly #older: readonly string[];
  readonly #spans: readonly { readonly fromMs: number; readonly toMs: number }[];

  /** Where the coordinator lost its past, which no older program can know. */
  readonly regressions: readonly Regression[];

  constructor(events: readonly Event[], setup: EventOf<"setup">) {
    const { older = [], ttlMs } = setup;
    this.#older = older;
    this.regressions = findRegressions(events, setup);
    const healedMs = new Map(
      events.filter((event) => event.kind === "healed").map(({ fault, t }) => [fault, t]),
    );
    this.#spans = events.filter((event) => event.kind === "fault")
      .filter(({ name }) => TAKING.includes(name))
      .map(({ t, fault }) => ({
        fromMs: t,
        // Whoever was live when the entry was taken is so for a TTL at most.
        toMs: Math.max(t, healedMs.get(fault) ?? t) + LATE_MS + ttlMs,
      }));
  }

  /** Whether nodes that met at this time are exempt: one is an older program, and an entry was taken. */
  cover(t: number, nodes: readonly string[]): boolean {
    return nodes.some((node) => this.isOlder(node)) &&
      this.#spans.some(({ fromMs, toMs }) => fromMs <= t && t <= toMs);
  }

  /** Whether an older program writes in an epoch that a coordinator without its past gave it. */
  isBehind(
    { store, node, epoch }: Pick<EventOf<"written">, "store" | "node" | "epoch">,
  ): boolean {
    return this.regressions.some((each) =>
      each.store === store && each.node === node && each.epoch === epoch
    );
  }

  isOlder(node: string): boolean {
    return this.#older.includes(node);
  }
}
