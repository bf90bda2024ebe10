/**
 * The simulated coordinator keeps the contract that the real one keeps: else a simulation of it
 * would prove nothing.
 * @module
 */
import { type CoordinatorFixture, describeCoordinator } from "../contract/coordinator.ts";
import { SimClock, SimTimers } from "./clocks.ts";
import { SimCoordinator } from "./coordinator.ts";
import { Link } from "./link.ts";
import { without } from "./mutations.ts";
import { Random } from "./random.ts";
import { Scheduler } from "./scheduler.ts";
import { SimServer } from "./server.ts";
import { Trace } from "./trace.ts";

const TTL_MS = 3_000;

/** A network in which nothing goes wrong but what the suite asks for. */
const FAIR = { latencyMs: 1, lossRate: 0, slowRate: 0, twiceRate: 0 };

function simFixture(options: { muteConflicts: boolean }): CoordinatorFixture {
  const scheduler = new Scheduler();
  const random = new Random(1);
  const server = new SimServer(scheduler, random, new Trace(scheduler, false), {
    ttlMs: TTL_MS,
    rate: 1,
    staleReads: false,
    mutations: without(null).mutations,
    ...options,
  });
  const world = { scheduler, random, server, plan: FAIR, calm: false };
  const blocked = { up: 0, down: 0 };
  const links: Link[] = [];
  const connected = (is: boolean) => {
    while (links.some((link) => link.connected !== is)) scheduler.next();
  };
  const settle = async <T>(promise: Promise<T>): Promise<T> => {
    let open = true;
    promise.then(() => open = false, () => open = false);
    // A promise is settled some microtasks after the callback that settles it.
    for (let idle = 0; open && idle < 10;) {
      await Promise.resolve();
      idle = open && !scheduler.next() ? idle + 1 : 0;
    }
    return await promise;
  };
  return {
    ttlMs: TTL_MS,
    open(identity) {
      const link = new Link(world, blocked);
      links.push(link);
      link.dial();
      connected(true);
      const deliver = (run: () => void) => run();
      const timers = new SimTimers(scheduler, random, new SimClock(scheduler, 1, 0), deliver);
      return Promise.resolve(
        new SimCoordinator({
          link,
          timers,
          self: identity,
          process: links.length,
          ttlMs: () => TTL_MS,
          tellsTtl: true,
          onPut: () => {},
          deliver,
          perfectMs: () => scheduler.nowMs,
        }),
      );
    },
    putForeign: (store, value) => Promise.resolve(server.putForeign(store, value)),
    pass: (ms) => Promise.resolve(scheduler.run(scheduler.nowMs + ms, () => true)),
    settle,
    disconnect() {
      blocked.up++;
      blocked.down++;
      for (const link of links) link.drop();
      return Promise.resolve(connected(false));
    },
    reconnect() {
      blocked.up--;
      blocked.down--;
      return Promise.resolve(connected(true));
    },
    stop: () => Promise.resolve(),
  };
}

describeCoordinator("simulated", () => Promise.resolve(simFixture({ muteConflicts: false })));

describeCoordinator(
  "simulated, conflicts without a number",
  () => Promise.resolve(simFixture({ muteConflicts: true })),
  { small: true },
);
