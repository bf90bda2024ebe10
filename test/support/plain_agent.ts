/** An agent in this process, alone, with a memory that forgets and locks that nobody takes. */
import { Agent } from "../../src/agent/agent.ts";
import type { AgentOptions, AgentPorts } from "../../src/agent/types.ts";
import type { Clock, Timers } from "../../src/ports/clock.ts";
import { StandaloneCoordinator } from "../../src/standalone/coordinator.ts";

/** Connected, its TTL known; with these ports in the place of plain ones. */
export function plainAgent(
  time: Clock & Timers,
  { ports, ...options }: Partial<AgentOptions> & {
    readonly ttlMs: number;
    readonly ports?: Partial<AgentPorts>;
  },
): Agent {
  const nothing = new Proxy({}, { get: () => () => null }) as never;
  const memory = {
    previousIncarnations: new Set(),
    strangers: new Set(),
    graces: new Map(),
    problem: null,
    clientsGone: () => true,
    lingerUntilMs: () => 0,
    rememberGrace: () => null,
    forgetGrace: () => null,
    forgetStranger: () => null,
    tryJournal: () => null,
    beginGrant: () => {},
    secureGrant: () => null,
    endGrant: () => {},
  };
  const who = { node: "n", incarnation: "i", address: null };
  const agent = new Agent({
    ...who,
    drainMs: 0,
    maxWaiters: 1,
    maxGrants: 1,
    maxLocks: 1,
    standalone: "a test",
    ...options,
  }, {
    clock: time,
    timers: time,
    coordinator: new StandaloneCoordinator({ ...who, epochOnDisk: () => 0 }),
    locks: { path: (store) => store, lock: () => () => {} },
    memory: memory as unknown as AgentPorts["memory"],
    newToken: () => "t",
    observer: nothing,
    ...ports,
  });
  agent.setTtl(options.ttlMs);
  agent.setConnected(true);
  return agent;
}
