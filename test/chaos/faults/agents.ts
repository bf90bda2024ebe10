/**
 * Faults of agents, of their hosts and writers, and what operators do to them.
 * @module
 */
import { runAgentCommand } from "../commands.ts";
import type { FaultKind } from "./kind.ts";

/** Faults of agents. */
export const AGENT_FAULTS: FaultKind[] = [
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
  {
    name: "kill older program",
    area: "agents",
    fits: ({ older }) => older !== null,
    async inject({ older, history }) {
      history.note({ kind: "gone", prefix: older!.prefix });
      await older!.kill();
      return { targets: [older!.node], heal: () => older!.start() };
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
