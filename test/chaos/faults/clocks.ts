/**
 * Steps of wall clocks.
 * @module
 */
import { canStepServers, stepWallClock } from "../wall_clock.ts";
import { type FaultKind, leaderOf } from "./kind.ts";

/** Seconds; an agent may be off by any amount: its deadlines do not know of it. */
const AGENT_STEPS = [-3_600, -30, 30, 3_600];
/**
 * Seconds. A server that is ahead stamps entries with times to come, and when it is put right they
 * live on for as long: more than a little would keep a dead holder's store from everybody.
 */
const SERVER_STEPS = [-3_600, -5, 2, 5];

/** Steps of wall clocks. */
export const CLOCK_FAULTS: FaultKind[] = [
  {
    name: "step agent's clock",
    area: "clocks",
    fits: ({ agents }) => agents.some(({ canStepClock }) => canStepClock),
    inject(world, random) {
      const agent = world.agents.find(({ canStepClock }) => canStepClock)!;
      const seconds = random.pick(AGENT_STEPS);
      agent.stepClock(seconds);
      return {
        targets: [agent.name],
        detail: `${seconds} s`,
        heal: () => agent.stepClock(0),
      };
    },
  },
  {
    name: "step server's clock",
    area: "clocks",
    fits: () => canStepServers,
    async inject(world, random) {
      const server = await leaderOf(world, random);
      const { process } = server;
      if (process === null || server.frozen) throw new Error(`${server.host.name} does not run`);
      const seconds = random.pick(SERVER_STEPS);
      world.servers.freeze(server);
      stepWallClock(process.pid, seconds);
      world.servers.thaw(server);
      return {
        targets: [server.host.name],
        detail: `${seconds} s`,
        heal() {
          if (server.process === process && process.exitCode === null) {
            stepWallClock(process.pid, 0);
          }
        },
      };
    },
  },
];
