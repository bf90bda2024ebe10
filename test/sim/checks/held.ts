/**
 * Checkers of `held`.
 * @module
 */
import { deadlineMs } from "../../../src/lease/timing.ts";
import type { SimNode } from "../node.ts";
import { short } from "../trace.ts";
import type { Checks } from "./checks.ts";

/** Checks what agents would answer to `held`. */
export class HeldChecks {
  readonly #checks: Checks;

  constructor(checks: Checks) {
    this.#checks = checks;
  }

  /** Looks at what the node would say now. */
  afterEvent(node: SimNode): void {
    for (const store of this.#checks.world.plan.stores) {
      if (this.#isHeld(node, store)) this.#check(node, store);
    }
  }

  /** The node said that it holds the store. */
  said(node: SimNode, store: string): void {
    if (!this.#isHeld(node, store)) {
      this.#checks.fail("held", `${node.label} said it held ${store}, but does not`);
    }
  }

  /** What came after its own deadline proves nothing. */
  proven(node: SimNode, store: string): void {
    const known = node.run?.agent.inspect(store) ?? null;
    if (known?.store.lease.phase !== "ours") return;
    const overMs = node.clock.bootMs() -
      deadlineMs(known.store.lease.provenAtMs, known.context.timing);
    if (overMs < 0) return;
    const message = `${node.label} takes an acknowledgement for a proof of ${store} ` +
      `${Math.round(overMs)} ms after its deadline`;
    this.#checks.fail("late", message);
  }

  #isHeld(node: SimNode, store: string): boolean {
    const known = node.run?.agent.inspect(store) ?? null;
    return known !== null && known.store.held(node.clock.bootMs(), known.context);
  }

  #check(node: SimNode, store: string): void {
    const { world, grants, nowMs, amnesiaMs } = this.#checks;
    const { store: known } = node.run!.agent.inspect(store)!;
    // With the tenures lost nobody can know whom they displace.
    const lostPast = nowMs - amnesiaMs < 1.1 * world.plan.ttlMs;
    for (const other of world.nodes) {
      if (other === node || lostPast || !this.#isHeld(other, store)) continue;
      const epochs = [node, other].map((each) => this.#epochOf(each, store)).join(" and ");
      const message = `${node.label} and ${other.label} both hold ${store}, epochs ${epochs}`;
      return this.#checks.fail("held", message);
    }
    for (const grant of grants.live(store)) {
      if (grant.node === node || lostPast) continue;
      const message = `${node.label} holds ${store} while process ${grant.client.pid} of ` +
        `${grant.node.label} has a live grant`;
      return this.#checks.fail("held", message);
    }
    if (node.run!.coordinator.refused.get(store)) {
      const message = `${node.label} holds ${store} although its newest write met a conflict`;
      return this.#checks.fail("held", message);
    }
    if (known.lease.graceUntilMs > node.clock.bootMs()) {
      this.#checks.fail("held", `${node.label} holds ${store} in its grace`);
    }
  }

  #epochOf(node: SimNode, store: string): string {
    const lease = node.run!.agent.inspect(store)!.store.lease;
    return lease.phase === "ours" ? short(lease.epoch) : lease.phase;
  }
}
