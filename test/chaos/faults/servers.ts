/**
 * Faults of nats-servers.
 * @module
 */
import type { Random } from "../../support/random.ts";
import type { Server, Servers } from "../servers.ts";
import { SERVER_NAMES, type World } from "../world.ts";
import { type FaultKind, leaderOf } from "./kind.ts";

type Choose = (world: World, random: Random) => Promise<Server[]> | Server[];

const one: Choose = ({ servers }, random) => [random.pick(servers.all)];
const leader: Choose = async (world, random) => [await leaderOf(world, random)];
const all: Choose = ({ servers }) => [...servers.all];

function two({ servers }: World, random: Random): Server[] {
  const spared = random.pick(servers.all);
  return servers.all.filter((server) => server !== spared);
}

/** How servers stop serving, and what has them serve again. */
interface Way {
  stop(servers: Servers, server: Server): Promise<unknown> | void;
  heal(servers: Servers, server: Server): void;
}

const killed: Way = {
  stop: (servers, server) => servers.stop(server, "SIGKILL"),
  heal: (servers, server) => servers.start(server),
};
const stopped: Way = { ...killed, stop: (servers, server) => servers.stop(server, "SIGTERM") };
const unpowered: Way = { ...killed, stop: (servers, server) => servers.powerOff(server) };
const frozen: Way = {
  stop: (servers, server) => servers.freeze(server),
  heal: (servers, server) => servers.thaw(server),
};

function crash(name: string, choose: Choose, way: Way, fits?: FaultKind["fits"]): FaultKind {
  return {
    name,
    area: "servers",
    fits,
    async inject(world, random) {
      const victims = await choose(world, random);
      // At once: a power failure of several is one of all of them.
      await Promise.all(victims.map((server) => way.stop(world.servers, server)));
      return {
        targets: victims.map(({ host }) => host.name),
        heal() {
          for (const server of victims) way.heal(world.servers, server);
        },
      };
    },
  };
}

const hasDisks = ({ servers }: World) => servers.all.every(({ disk }) => disk !== null);

/** Faults of nats-servers. */
export const SERVER_FAULTS: FaultKind[] = [
  crash("kill server", one, killed),
  crash("kill leader", leader, killed),
  crash("freeze server", one, frozen),
  crash("freeze leader", leader, frozen),
  crash("restart server", one, stopped),
  crash("two servers down", two, killed),
  crash("all servers down", all, killed),
  crash("power failure of a server", one, unpowered, hasDisks),
  crash("power failure of the leader", leader, unpowered, hasDisks),
  // Without a sync of each write the coordinator forgets what it acknowledged, which is more than
  // agents can make good: test/cluster/power.test.ts shows what they do then.
  crash(
    "power failure of all servers",
    all,
    unpowered,
    (world) => hasDisks(world) && world.plan.sync === "always",
  ),
  {
    name: "move leader",
    area: "servers",
    async inject(world) {
      await world.operator.moveLeader();
      return { targets: SERVER_NAMES };
    },
  },
  {
    name: "upgrade server",
    area: "servers",
    fits: ({ plan }) => plan.programs.some((program) => program !== plan.upgradedServer),
    async inject({ servers, plan }, random) {
      const old = servers.all.filter(({ program }) => program !== plan.upgradedServer);
      const server = random.pick(old.length > 0 ? old : servers.all);
      await servers.stop(server, "SIGTERM");
      server.program = plan.upgradedServer;
      return {
        targets: [server.host.name],
        detail: `to ${server.program}`,
        heal: () => servers.start(server),
      };
    },
  },
];
