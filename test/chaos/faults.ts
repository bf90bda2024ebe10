/**
 * The faults: what each does and how it is healed. docs/faults.md tells what the agent does about them.
 * @module
 */
import { runAgentCommand } from "./commands.ts";
import type { Random } from "./random.ts";
import type { Server } from "./servers.ts";
import { canStepServers, stepWallClock } from "./wall_clock.ts";
import { AGENT_NAMES, SERVER_NAMES, type World } from "./world.ts";

/** A fault that was injected. */
export interface Injected {
  readonly targets: readonly string[];
  readonly detail?: string;
  /** Puts it right; absent where there is nothing to put right. */
  heal?(): Promise<void> | void;
}

/** A kind of fault. */
export interface FaultKind {
  readonly name: string;
  /** Two faults of one area are not injected at once. */
  readonly area:
    | "servers"
    | "network"
    | "agents"
    | "clocks"
    | "credentials"
    | "records"
    | "writers";
  /** Whether it can be injected in this run; default yes. */
  fits?(world: World): boolean;
  /** Throws where it cannot be done just now. */
  inject(world: World, random: Random): Promise<Injected> | Injected;
}

function onNamespaces({ network }: World): boolean {
  return network.kind === "namespaces";
}

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

async function leaderOf(world: World, random: Random): Promise<Server> {
  return await world.servers.leader("KV_leases") ?? random.pick(world.servers.all);
}

const SERVER_FAULTS: FaultKind[] = [
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

const NETWORK_FAULTS: FaultKind[] = [
  {
    name: "cut agent off",
    area: "network",
    fits: onNamespaces,
    inject: (world, random) => cut(world, both(random.pick(AGENT_NAMES), SERVER_NAMES)),
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

const AGENT_FAULTS: FaultKind[] = [
  {
    name: "kill agent",
    area: "agents",
    async inject(world, random) {
      const agent = random.pick(world.agents);
      await agent.end("SIGKILL");
      return { targets: [agent.name], heal: () => agent.run() };
    },
  },
  {
    name: "kill and restart agent",
    area: "agents",
    async inject(world, random) {
      const agent = random.pick(world.agents);
      await agent.end("SIGKILL");
      agent.run();
      return { targets: [agent.name] };
    },
  },
  {
    name: "kill host",
    area: "agents",
    async inject(world, random) {
      const agent = random.pick(world.agents);
      const writers = world.writers.find(({ node }) => node === agent.name)!;
      world.history.note({ kind: "gone", prefix: writers.prefix });
      await Promise.all([agent.end("SIGKILL"), writers.kill()]);
      return {
        targets: [agent.name],
        heal() {
          agent.run();
          writers.start();
        },
      };
    },
  },
  {
    name: "freeze agent",
    area: "agents",
    inject(world, random) {
      const agent = random.pick(world.agents);
      agent.freeze();
      return { targets: [agent.name], heal: () => agent.thaw() };
    },
  },
  {
    name: "stop agent",
    area: "agents",
    async inject(world, random) {
      const agent = random.pick(world.agents);
      const status = await agent.end("SIGTERM");
      return { targets: [agent.name], detail: `exit ${status}`, heal: () => agent.run() };
    },
  },
  {
    name: "step down",
    area: "agents",
    async inject(world, random) {
      const agent = random.pick(world.agents);
      await runAgentCommand(agent, ["stepdown", "--all", "--for", "2s"]);
      return { targets: [agent.name] };
    },
  },
  {
    name: "upgrade agent",
    area: "agents",
    fits: ({ plan }) => plan.upgradeTo !== null,
    async inject(world, random) {
      const { upgradeTo, upgradeFrom } = world.plan;
      const old = world.agents.filter(({ program }) => program === upgradeFrom);
      const agent = random.pick(old.length > 0 ? old : world.agents);
      await agent.end("SIGTERM");
      agent.program = agent.program === upgradeTo ? upgradeFrom! : upgradeTo!;
      agent.run();
      return { targets: [agent.name], detail: `to ${agent.program}` };
    },
  },
];

/** Seconds; an agent may be off by any amount: its deadlines do not know of it. */
const AGENT_STEPS = [-3_600, -30, 30, 3_600];
/**
 * Seconds. A server that is ahead stamps entries with times to come, and when it is put right they
 * live on for as long: more than a little would keep a dead holder's store from everybody.
 */
const SERVER_STEPS = [-3_600, -5, 2, 5];

const OTHER_FAULTS: FaultKind[] = [
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
  {
    name: "revoke credentials",
    area: "credentials",
    inject(world, random) {
      const users = random.chance(0.5) ? [random.pick(AGENT_NAMES)] : AGENT_NAMES;
      for (const user of users) world.servers.setPassword(user, "revoked");
      return {
        targets: users,
        heal() {
          for (const user of users) world.servers.setPassword(user, world.passwords.get(user)!);
        },
      };
    },
  },
  {
    name: "delete entry",
    area: "records",
    async inject(world, random) {
      const store = random.pick(world.plan.stores);
      await world.operator.deleteEntry(store);
      return { targets: SERVER_NAMES, detail: store };
    },
  },
  {
    name: "overwrite entry",
    area: "records",
    async inject(world, random) {
      const store = random.pick(world.plan.stores);
      const node = random.pick(["intruder", ...AGENT_NAMES]);
      await world.operator.overwriteEntry(store, node);
      return { targets: SERVER_NAMES, detail: `${store} by ${node}` };
    },
  },
  {
    name: "replace entry",
    area: "records",
    async inject(world, random) {
      const store = random.pick(world.plan.stores);
      await world.operator.deleteEntry(store);
      await world.operator.overwriteEntry(store, "intruder");
      await world.operator.deleteEntry(store);
      return { targets: SERVER_NAMES, detail: store };
    },
  },
  {
    name: "delete bucket",
    area: "records",
    async inject(world) {
      await world.operator.deleteBucket();
      return { targets: SERVER_NAMES };
    },
  },
  {
    name: "recreate bucket",
    area: "records",
    async inject(world) {
      await world.operator.recreateBucket();
      return { targets: SERVER_NAMES };
    },
  },
  {
    name: "kill writers",
    area: "writers",
    async inject(world, random) {
      const writers = random.pick(world.writers);
      world.history.note({ kind: "gone", prefix: writers.prefix });
      await writers.kill();
      return { targets: [writers.node], heal: () => writers.start() };
    },
  },
];

/** Every kind of fault. */
export const FAULTS: readonly FaultKind[] = [
  ...SERVER_FAULTS,
  ...NETWORK_FAULTS,
  ...AGENT_FAULTS,
  ...OTHER_FAULTS,
];
