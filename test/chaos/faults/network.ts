/**
 * Faults of the network: cuts, one-way ones too, loss and delay.
 * @module
 */
import { AGENT_NAMES, SERVER_NAMES, type World } from "../world.ts";
import { type FaultKind, leaderOf } from "./kind.ts";

function onNamespaces({ network }: World): boolean {
  return network.kind === "namespaces";
}

/** Cuts each pair, and heals the network. */
async function cut(world: World, pairs: readonly (readonly [from: string, to: string])[]) {
  for (const [from, to] of pairs) await world.network.cut(from, to);
  return {
    targets: [...new Set(pairs.flat())],
    detail: pairs.map(([from, to]) => `${from}→${to}`).join(" "),
    heal: () => world.network.heal(),
  };
}

function both(one: string, others: readonly string[]): [string, string][] {
  return others.flatMap((other) => [[one, other], [other, one]] as [string, string][]);
}

/** Faults of the network. */
export const NETWORK_FAULTS: FaultKind[] = [
  {
    name: "cut agent off",
    area: "network",
    fits: onNamespaces,
    inject: (world, random) => cut(world, both(random.pick(world.nodes), SERVER_NAMES)),
  },
  {
    name: "cut agent from one server",
    area: "network",
    fits: onNamespaces,
    inject: (world, random) =>
      cut(world, both(random.pick(AGENT_NAMES), [random.pick(SERVER_NAMES)])),
  },
  {
    name: "agent hears nothing",
    area: "network",
    fits: onNamespaces,
    inject(world, random) {
      const agent = random.pick(AGENT_NAMES);
      return cut(world, SERVER_NAMES.map((server) => [server, agent] as const));
    },
  },
  {
    name: "agent is not heard",
    area: "network",
    fits: onNamespaces,
    inject(world, random) {
      const agent = random.pick(AGENT_NAMES);
      return cut(world, SERVER_NAMES.map((server) => [agent, server] as const));
    },
  },
  {
    name: "split servers",
    area: "network",
    fits: onNamespaces,
    async inject(world, random) {
      const alone = random.chance(0.5) ? (await leaderOf(world, random)).host.name : "s2";
      return await cut(world, both(alone, SERVER_NAMES.filter((name) => name !== alone)));
    },
  },
  {
    name: "server is not heard by servers",
    area: "network",
    fits: onNamespaces,
    async inject(world, random) {
      const mute = (await leaderOf(world, random)).host.name;
      const others = SERVER_NAMES.filter((name) => name !== mute);
      return await cut(world, others.map((other) => [mute, other] as const));
    },
  },
  {
    name: "server hears no servers",
    area: "network",
    fits: onNamespaces,
    async inject(world, random) {
      const deaf = (await leaderOf(world, random)).host.name;
      const others = SERVER_NAMES.filter((name) => name !== deaf);
      return await cut(world, others.map((other) => [other, deaf] as const));
    },
  },
  {
    name: "lose packets",
    area: "network",
    fits: onNamespaces,
    async inject(world, random) {
      const everywhere = random.chance(0.3);
      const targets = everywhere
        ? [...AGENT_NAMES, ...SERVER_NAMES]
        : [random.pick([...AGENT_NAMES, ...SERVER_NAMES])];
      const percent = everywhere ? 3 : random.pick([5, 20, 40]);
      for (const target of targets) await world.network.lose(target, percent);
      return { targets, detail: `${percent} %`, heal: () => world.network.heal() };
    },
  },
  {
    name: "lose packets between servers",
    area: "network",
    fits: onNamespaces,
    async inject(world, random) {
      const others = (name: string) => SERVER_NAMES.filter((other) => other !== name);
      const targets = random.chance(0.5) ? SERVER_NAMES : [random.pick(SERVER_NAMES)];
      const percent = random.pick([5, 20, 40]);
      for (const target of targets) await world.network.lose(target, percent, others(target));
      return { targets, detail: `${percent} %`, heal: () => world.network.heal() };
    },
  },
  {
    name: "delay servers",
    area: "network",
    inject(world, random) {
      const { servers } = world;
      // Who dialled whom is told apart by addresses, of which the loopback has one.
      const some = onNamespaces(world) && random.chance(0.5);
      const targets = some ? [random.pick(servers.all)] : servers.all;
      const delayMs = random.pick([20, 100, 300, 800]);
      servers.delayRoutes(delayMs, targets);
      return {
        targets: targets.map(({ host }) => host.name),
        detail: `${delayMs} ms each way`,
        heal: () => servers.delayRoutes(0),
      };
    },
  },
  {
    name: "delay agent",
    area: "network",
    inject(world, random) {
      const agent = random.pick(world.agents.filter(({ plan }) => plan.proxied));
      const delayMs = random.pick([20, 150, 400, 900]);
      agent.tellProxy({ delayMs });
      return {
        targets: [agent.name],
        detail: `${delayMs} ms each way`,
        heal: () => agent.tellProxy({ delayMs: 0 }),
      };
    },
  },
  {
    name: "hold agent's traffic",
    area: "network",
    inject(world, random) {
      const agent = random.pick(world.agents.filter(({ plan }) => plan.proxied));
      agent.tellProxy({ hold: SERVER_NAMES.map((_, index) => index) });
      // What was held is sent when it is healed: writes that were given up on land late.
      return { targets: [agent.name], heal: () => agent.tellProxy({ hold: [] }) };
    },
  },
];
