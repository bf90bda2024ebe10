/**
 * Who asks for what, and when: loops of clients on every host.
 * @module
 */
import { SimClient, type Wish } from "./client.ts";
import type { SimNode } from "./node.ts";
import type { World } from "./world.ts";

/** Keeps clients coming on one host, for one store or for any, for as long as the world lasts. */
export function keepAsking(node: SimNode, store?: string): void {
  const { world } = node;
  const { scheduler, random, plan } = world;
  const next = () => {
    const thinkMs = world.calm ? Math.min(plan.thinkMs, 200) : plan.thinkMs;
    scheduler.after(random.about(thinkMs), () => {
      if (random.chance(0.1)) askHeld(node);
      const wish = drawWish(world);
      const client = new SimClient(node, store === undefined ? wish : { ...wish, store }, {
        holdMs: drawHold(world),
        whenOver: next,
      });
      client.start();
    });
  };
  next();
}

function drawWish(world: World): Wish {
  const { random, plan } = world;
  const waits = world.calm
    ? [0, 100, 1_000]
    : [0, 0, 0, 100, 1_000, 2_500, plan.ttlMs, 3 * plan.ttlMs];
  return {
    store: random.pick(plan.stores),
    waitMs: random.pick(waits),
    shared: random.chance(0.2),
    waitLease: random.chance(0.3),
    passLock: random.chance(0.4),
    follow: random.chance(0.6),
  };
}

function drawHold({ random, plan, calm }: World): number {
  if (calm || random.chance(0.6)) return random.between(0, 200);
  if (random.chance(0.7)) return random.between(0, plan.ttlMs);
  return random.between(0, 3 * plan.ttlMs);
}

function askHeld(node: SimNode): void {
  const { world } = node;
  const store = world.random.pick(world.plan.stores);
  node.ask((agent) => {
    agent.asking.one({ id: 0 }, store, {
      ok(held) {
        if (held) world.checks.saidHeld(node, store);
      },
      fail: ({ message }) => world.checks.fail("held", message),
    });
  });
}
