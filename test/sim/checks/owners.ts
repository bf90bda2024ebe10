/**
 * Checker of ownership: nobody's entry is replaced or deleted but by its holder. It also keeps what
 * other checkers need to know about the past: who had the entry, and who owed a grace.
 * @module
 */
import { deadlineMs } from "../../../src/lease/timing.ts";
import type { TenureRecord } from "../../../src/lease/tenure.ts";
import type { Author, Message } from "../bucket.ts";
import type { Entry } from "../server.ts";
import type { Checks } from "./checks.ts";

/** How late an entry may age out, in milliseconds. */
const LATE_MS = 340;

/** Checks writes, and remembers them. */
export class Owners {
  readonly #checks: Checks;
  /** By store and node name: until when at most an entry of that name was there. */
  readonly #presentMs = new Map<string, Map<string, number>>();
  /** By store: when a tenure that owed a grace was last recorded, or a dead one's was taken over. */
  readonly owedMs = new Map<string, number>();

  constructor(checks: Checks) {
    this.#checks = checks;
  }

  onEntry(store: string, before: Message<Entry> | null, author: Author, deleted: boolean): void {
    const { nowMs, world } = this.#checks;
    if (before !== null) {
      this.#note(store, before.value!.node, nowMs);
      if (!this.#mayReplace(before, author)) {
        const deed = deleted ? "deletes" : "overwrites";
        const message = `${author.node} (${author.incarnation}) ${deed} the entry of ${
          before.value!.node
        } (${before.value!.incarnation}) on ${store}`;
        return this.#checks.fail("owner", message);
      }
    }
    if (!deleted) this.#checkBelief(store, author);
    if (!deleted) this.#note(store, author.node, nowMs + world.plan.ttlMs * 1.01 + LATE_MS);
  }

  /** Nobody may believe that he holds what another gets, unless his entry was taken from him. */
  #checkBelief(store: string, author: Author): void {
    const { world, nowMs } = this.#checks;
    const disturbedMs = world.server.disturbedMs.get(store) ?? -Infinity;
    if (disturbedMs >= nowMs - 1.1 * world.plan.ttlMs) return;
    // Whoever was not told of a smaller TTL, or is told late, believes by the old one.
    if (world.server.smallMs >= nowMs - 1.1 * world.plan.ttlMs) return;
    for (const { run, clock, label } of world.nodes) {
      if (run === null || run.process === author.process) continue;
      const known = run.agent.inspect(store);
      if (known === null || known.store.lease.phase !== "ours") continue;
      const leftMs = deadlineMs(known.store.lease.provenAtMs, known.context.timing) -
        clock.bootMs();
      if (leftMs <= 0 || world.runs.get(author.process)?.memory.inherits.has(run.incarnation)) {
        continue;
      }
      const message = `${author.node} gets ${store} while ${label} believes to hold it for ` +
        `${leftMs.toFixed(1)} ms more`;
      this.#checks.fail("belief", message);
    }
  }

  /** An operator wrote over whatever was there. */
  meddled(store: string, before: string, node: string | null): void {
    const { nowMs, world } = this.#checks;
    this.#note(store, before, nowMs);
    if (node !== null) this.#note(store, node, nowMs + world.plan.ttlMs * 1.01 + LATE_MS);
  }

  /** Its own, or that of an earlier run on the same host, state directory kept. */
  #mayReplace({ author: owner, value }: Message<Entry>, author: Author): boolean {
    if (owner.process === author.process) return true;
    if (value!.incarnation === null || value!.node !== author.node) return false;
    return this.#checks.world.runs.get(author.process)!.memory.inherits.has(owner.incarnation!);
  }

  onTenure(store: string, before: TenureRecord | null, record: TenureRecord): void {
    if (record.released_at !== undefined || before === null) return;
    if (before.released_at !== undefined || before.incarnation === record.incarnation) return;
    this.owedMs.set(store, this.#checks.nowMs);
  }

  /** Until when, at most, an entry under this node's name was there. */
  presentMs(store: string, node: string): number {
    const { nowMs, world } = this.#checks;
    if (world.server.entry(store)?.value?.node === node) return nowMs;
    return Math.min(nowMs, this.#presentMs.get(store)?.get(node) ?? -Infinity);
  }

  #note(store: string, node: string, untilMs: number): void {
    const byNode = this.#presentMs.get(store) ?? new Map<string, number>();
    this.#presentMs.set(store, byNode);
    byNode.set(node, untilMs);
  }
}
