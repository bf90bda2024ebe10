/**
 * Faults of nats-servers.
 * @module
 */
import type { Server } from "../servers.ts";
import { SERVER_NAMES, type World } from "../world.ts";
import { type FaultKind, leaderOf } from "./kind.ts";

/** Stops servers from serving, and has them serve again. */
async function crash(
  world: World,
  victims: readonly Server[],
  how: "SIGKILL" | "SIGTERM" | "freeze",
) {
  const { servers } = world;
  for (const server of victims) {
    if (how === "freeze") servers.freeze(server);
    else await servers.stop(server, how);
  }
  return {
    targets: victims.map(({ host }) => host.name),
    heal() {
      for (const server of victims) {
        if (how === "freeze") servers.thaw(server);
        else servers.start(server);
      }
    },
  };
}

/** Faults of nats-servers. */
export const SERVER_FAULTS: FaultKind[] = [
  {
    name: "kill server",
    area: "servers",
    inject: (world, random) => crash(world, [random.pick(world.servers.all)], "SIGKILL"),
  },
  {
    name: "kill leader",
    area: "servers",
    inject: async (world, random) => crash(world, [await leaderOf(world, random)], "SIGKILL"),
  },
  {
    name: "freeze server",
    area: "servers",
    inject: (world, random) => crash(world, [random.pick(world.servers.all)], "freeze"),
  },
  {
    name: "freeze leader",
    area: "servers",
    inject: async (world, random) => crash(world, [await leaderOf(world, random)], "freeze"),
  },
  {
    name: "restart server",
    area: "servers",
    inject: (world, random) => crash(world, [random.pick(world.servers.all)], "SIGTERM"),
  },
  {
    name: "two servers down",
    area: "servers",
    inject(world, random) {
      const spared = random.pick(world.servers.all);
      return crash(world, world.servers.all.filter((server) => server !== spared), "SIGKILL");
    },
  },
  {
    name: "all servers down",
    area: "servers",
    inject: (world) => crash(world, world.servers.all, "SIGKILL"),
  },
  {
    name: "move leader",
    area: "servers",
    async inject(world) {
      await world.operator.moveLeader();
      return { targets: SERVER_NAMES };
    },
  },
];
