/**
 * What a scheduler's tick over very many stores costs with a local view, beside asking the agent.
 * @module
 */
import { connect } from "../../src/client/mod.ts";
import { RealAgent } from "../../test/support/real_agent.ts";
import { until } from "../../test/support/wait.ts";
import { print, quantile } from "./figures.ts";

const STORES = 100_000;
const TICKS = 50;
/** How long 100,000 stores may take to be acquired and told; a busy machine needs a while. */
const READY_WITHIN_MS = 60_000;

/** `heldOf` and `held` of a view over 100,000 stores, in nanoseconds a store. */
export async function view(): Promise<void> {
  await using agent = await RealAgent.start({ node: "bench", flags: ["--log-level", "info"] });
  await using client = await connect({ socket: agent.socket });
  const stores = Array.from({ length: STORES }, (_, i) => `group-${i % 100}/store-${i}`);
  await using local = client.heldView(stores);
  await local.ready;
  const all = () => local.heldOf(stores).length === STORES;
  await until("all stores are held", all, READY_WITHIN_MS);
  const tick: number[] = [];
  const single: number[] = [];
  const asked: number[] = [];
  for (let i = 0; i < TICKS; i++) {
    await until("the view is fresh", () => local.fresh);
    tick.push(await nsPerStore(() => local.heldOf(stores)));
    single.push(
      await nsPerStore(() => {
        for (let j = 0; j < STORES; j++) local.held(stores[j]!);
      }),
    );
    asked.push(await nsPerStore(() => client.held(stores)));
  }
  const vs = quantile(asked, 0.5);
  print({ name: "view_tick_p50", value: quantile(tick, 0.5), unit: "ns/store", vs });
  print({ name: "view_tick_p99", value: quantile(tick, 0.99), unit: "ns/store" });
  print({ name: "view_held_p50", value: quantile(single, 0.5), unit: "ns/store", vs });
}

async function nsPerStore(act: () => unknown): Promise<number> {
  const start = Bun.nanoseconds();
  await act();
  return (Bun.nanoseconds() - start) / STORES;
}
