/**
 * Asks several agents for grants on one store again and again, and notes when two of them have one.
 * @module
 */
import type { Connection } from "../../src/client/mod.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import type { RealAgent } from "./real_agent.ts";

const STORE = "one";

/** How long a grant is verified again and again before it is released, in milliseconds. */
const HOLD_MS = 1_000;

/** Clients of several agents that want to write the same store. */
export class GrantWatch {
  /** Each time that a grant was given or verified while another agent's was live, in words. */
  readonly overlaps: string[] = [];
  /** How many grants each agent gave. */
  readonly grants = new Map<string, number>();
  /** Until when the grants are live, by agent; by the clock that all share. */
  readonly #liveUntilMs = new Map<string, number>();
  readonly #clients: Promise<void>[];
  #stopped = false;

  constructor(agents: readonly RealAgent[]) {
    for (const agent of agents) agent.makeStore(STORE);
    this.#clients = agents.map((agent) => this.#write(agent));
  }

  /** How many grants were given by now. */
  get count(): number {
    return [...this.grants.values()].reduce((sum, each) => sum + each, 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#clients);
  }

  async #write(agent: RealAgent): Promise<void> {
    const client = await agent.client();
    while (!this.#stopped) {
      try {
        await this.#hold(agent.options.node, client);
      } catch {
        await Bun.sleep(50); // Refused, for whatever reason: it is tried again.
      }
    }
  }

  async #hold(node: string, client: Connection): Promise<void> {
    const { token, deadline_boot_ms } = await client.call("guard", {
      store: STORE,
      wait_ms: 500,
      wait_lease: true,
    });
    this.grants.set(node, (this.grants.get(node) ?? 0) + 1);
    this.#note(node, deadline_boot_ms);
    const endMs = bootTimeMs() + HOLD_MS;
    while (bootTimeMs() < endMs && !this.#stopped) {
      const sentMs = bootTimeMs();
      try {
        const { remaining_ms } = await client.call("verify", { token, store: STORE });
        // It had this much left when it was told, so from when it was asked it is not less.
        this.#note(node, sentMs + remaining_ms);
      } catch {
        break;
      }
      await Bun.sleep(20);
    }
    // Before it is released: another agent may be granted while the answer is on its way.
    this.#liveUntilMs.delete(node);
    await client.call("release", { token });
  }

  #note(node: string, untilMs: number): void {
    const nowMs = bootTimeMs();
    for (const [other, liveMs] of this.#liveUntilMs) {
      if (other === node || liveMs <= nowMs) continue;
      this.overlaps.push(`${node} writes while ${other} may for ${Math.round(liveMs - nowMs)} ms`);
    }
    this.#liveUntilMs.set(node, untilMs);
  }
}
