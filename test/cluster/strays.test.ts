/**
 * Real agents with a server in `--nats` that is not in the cluster: nothing is granted twice, somebody
 * is told, and it ends when the server is put right.
 */
import { describe, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { Admin } from "../support/admin.ts";
import { GrantWatch } from "../support/grant_watch.ts";
import { freePort, NatsCluster, NatsServer } from "../support/nats.ts";
import { RealAgent, type RealAgentOptions, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 240_000;

/** Elections of a cluster on a machine that is busy. */
const ELECTION_MS = 60_000;

async function startAgents(
  nodes: readonly string[],
  nats: string,
  flags: readonly string[] = [],
): Promise<AsyncDisposable & { readonly all: readonly RealAgent[] }> {
  const all = await Promise.all(
    nodes.map((node) => RealAgent.start({ node, nats, flags: ["--ttl", "5s", ...flags] })),
  );
  return {
    all,
    async [Symbol.asyncDispose]() {
      for (const agent of all) await agent[Symbol.asyncDispose]();
    },
  };
}

async function check(agent: RealAgent): Promise<string> {
  return (await runClient(agent, ["--check"])).stdout.trim();
}

/** Resolves when `--check` of each agent says so. */
async function allSay(agents: readonly RealAgent[], words: RegExp): Promise<void> {
  for (const agent of agents) {
    await until(
      `${agent.options.node} says ${words}`,
      async () => words.test(await check(agent)),
      ELECTION_MS,
    );
  }
}

/** Resolves when somebody was granted the store from now on. */
async function isGranted(watch: GrantWatch): Promise<void> {
  const { count } = watch;
  await until("the store is granted again", () => watch.count > count, ELECTION_MS);
}

/** What streams the server keeps. */
async function streamsOf(server: NatsServer): Promise<string[]> {
  await using admin = await Admin.connect(server.url);
  return await admin.jsm.streams.names().next();
}

describe("a server that is not in the cluster", () => {
  test("is not used when its host was made anew without its cluster block", async () => {
    await using cluster = await NatsCluster.start(3);
    const [n1, n2, n3] = cluster.servers as [NatsServer, NatsServer, NatsServer];
    await using agents = await startAgents(["a", "b", "c"], cluster.urls.join(","));
    await using watch = new GrantWatch(agents.all);
    await isGranted(watch);
    const { config } = n1;
    await n1.wipe();
    await n1.restart("");
    for (const server of [n2, n3]) {
      // Whoever is connected to it looks for another one, and finds n1 as often as not.
      await server.restart();
      await isGranted(watch);
    }
    await allSay(agents.all, /^healthy.*not in a cluster, beside/s);
    expect(await streamsOf(n1)).toEqual([]);
    await n1.restart(config);
    await cluster.healthy();
    // Whoever is connected anew asks anew, before its minute is over.
    await n2.restart();
    await n3.restart();
    await allSay(agents.all, /^healthy: (?!.*cluster)/s);
    await isGranted(watch);
    expect(watch.overlaps).toEqual([]);
  }, TEST_MS);

  test(
    "is not used by an agent that is restarted and knows no other, until its past is taken away",
    async () => {
      await using cluster = await NatsCluster.start(3);
      const [n1] = cluster.servers as [NatsServer, NatsServer, NatsServer];
      // As an agent that is told of the server on its own host alone.
      const start = (more: Partial<RealAgentOptions> = {}) =>
        RealAgent.start({ node: "a", nats: n1.url, flags: ["--ttl", "5s"], ...more });
      await using before = await start();
      await allSay([before], /^healthy/);
      expect(await before.end("SIGTERM")).toBe(0);
      await n1.wipe();
      await n1.restart("");
      const { state } = before;
      {
        await using agent = await start({ state });
        await allSay(
          [agent],
          /^unhealthy; coordinator: .*the servers that this agent has used are/,
        );
        expect(await streamsOf(n1)).toEqual([]);
        expect(await agent.end("SIGTERM")).toBe(0);
      }
      rmSync(join(state, "clusters"));
      await using agent = await start({ state });
      await allSay([agent], /^healthy/);
    },
    TEST_MS,
  );

  test("is not used by a fleet that starts", async () => {
    await using cluster = await NatsCluster.start(3);
    await using stray = await NatsServer.start({ name: "stray" });
    const nats = [stray.url, ...cluster.urls].join(",");
    await using agents = await startAgents(["a", "b", "c", "d", "e"], nats);
    await using watch = new GrantWatch(agents.all);
    await allSay(agents.all, new RegExp(`^healthy.*${new URL(stray.url).host}, not in a cluster`));
    await isGranted(watch);
    expect(await streamsOf(stray)).toEqual([]);
    expect(watch.overlaps).toEqual([]);
  }, TEST_MS);

  test("is not used beside another one, until they are a cluster", async () => {
    await using n1 = await NatsServer.start({ name: "n1" });
    await using n2 = await NatsServer.start({ name: "n2" });
    await using agents = await startAgents(["a", "b", "c"], `${n1.url},${n2.url}`);
    await using watch = new GrantWatch(agents.all);
    await allSay(agents.all, /^unhealthy; coordinator: .*another server.*Cluster them/);
    const [agent] = agents.all;
    const refused = await refusal((await agent!.client()).call("guard", { store: "one" }));
    expect(refused.kind).toBe("unavailable");
    expect(refused.error.message).toContain("they do not share the leases");
    await n2.kill();
    await allSay(agents.all, /^unhealthy; coordinator: .*does not answer/);
    expect(await streamsOf(n1)).toEqual([]);
    expect(watch.count).toBe(0);
    // Each is told of once, however often it is tried.
    const told = agent!.log().filter(({ event, check }) =>
      event === "problem" && check === "coordinator"
    );
    expect(told.length).toBeLessThanOrEqual(2);

    await makeCluster([n1, n2]);
    await isGranted(watch);
    await allSay(agents.all, /^healthy/);
    expect(watch.overlaps).toEqual([]);
  }, TEST_MS);

  test("is used where that is accepted, and where nobody knows of another", async () => {
    await using n1 = await NatsServer.start({ name: "n1" });
    await using n2 = await NatsServer.start({ name: "n2" });
    await using reckless = await startAgents(["a"], `${n1.url},${n2.url}`, [
      "--allow-unsafe-server",
    ]);
    await allSay(reckless.all, /^healthy.*another server.*\(accepted\)/);
    // And that the watch sees what the other tests say does not happen.
    await using first = await startAgents(["b"], n1.url);
    await using second = await startAgents(["c"], n2.url);
    await using watch = new GrantWatch([...first.all, ...second.all]);
    await until("two are granted the store", () => watch.overlaps.length > 0, ELECTION_MS);
  }, TEST_MS);
});

/** Makes a cluster of two servers, which run or not. */
async function makeCluster(servers: readonly NatsServer[]): Promise<void> {
  const ports = await Promise.all(servers.map(freePort));
  const routes = ports.map((port) => `"nats://127.0.0.1:${port}"`).join(", ");
  await Promise.all(
    servers.map((server, i) =>
      server.restart(
        `cluster { name: leases, listen: "127.0.0.1:${ports[i]}", routes: [${routes}] }`,
      )
    ),
  );
}
