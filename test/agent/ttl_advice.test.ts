/** What an agent says to do about a bucket's TTL mends it. */
import { describe, expect, test } from "bun:test";
import { nanos } from "@nats-io/transport-node";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

function start(server: NatsServer, flags: readonly string[] = []) {
  return RealAgent.start({ node: "alpha", nats: server.url, flags });
}

async function setTtl(server: NatsServer, ttlMs: number): Promise<void> {
  await using admin = await Admin.connect(server.url);
  // A server takes no window longer than the TTL.
  await admin.jsm.streams.update("KV_leases", {
    max_age: nanos(ttlMs),
    duplicate_window: nanos(1_000),
  });
}

/** Its `--check --json`, once it is healthy. */
function healthy(agent: RealAgent) {
  return until("it is healthy", async () => {
    const { status, stdout } = await runClient(agent, ["--check", "--json"]);
    return status === 0 ? JSON.parse(stdout) : null;
  });
}

/** How a guard is refused once the bucket contradicts the agent. */
async function contradiction(agent: RealAgent): Promise<string> {
  await agent.logged("problem", { check: "bucket" });
  agent.makeStore("one");
  const { kind, error } = await refusal((await agent.client()).call("guard", { store: "one" }));
  expect(kind).toBe("misconfigured");
  return error.message;
}

describe("the advice about a TTL", () => {
  test.each([["with that --ttl", ["--ttl", "15s"]], ["with none", []]])(
    "below 3 s works for agents that are started again %s",
    async (_, flags) => {
      await using server = await NatsServer.start();
      await using first = await start(server, ["--ttl", "2s"]);
      const { message } = await first.logged("coordinator_warning", { check: "short_ttl" });
      expect(message).toContain(
        "stop all agents, set max_age to 15s, and start them with --ttl 15s or none",
      );
      expect(await first.end("SIGTERM")).toBe(0);
      await setTtl(server, 15_000);
      // Its memory goes by 2 s.
      await using again = await RealAgent.start({
        ...first.options,
        state: first.state,
        flags,
      });
      expect((await healthy(again)).warnings).toEqual([]);
    },
    TEST_MS,
  );

  test(
    "that changed names no --ttl to an agent that has none, and a restart adopts it",
    async () => {
      await using server = await NatsServer.start();
      await using first = await start(server);
      await setTtl(server, 9_000);
      const message = await contradiction(first);
      expect(message).toContain("has a TTL of 9s, but this agent goes by 15s");
      expect(message).toEndWith(
        "put max_age back to 15s, or restart all agents to adopt the new one",
      );
      expect(await first.end("SIGTERM")).toBe(0);
      await using again = await RealAgent.start({ ...first.options, state: first.state });
      await healthy(again);
      expect(await again.logged("coordinator_ready")).toMatchObject({ ttl_ms: 9_000 });
      await setTtl(server, 15_000);
      await contradiction(again);
      await setTtl(server, 9_000);
      await healthy(again);
    },
    TEST_MS,
  );

  test("that changed names --ttl to an agent that has it", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server, ["--ttl", "15s"]);
    await setTtl(server, 20_000);
    expect(await contradiction(agent)).toEndWith("leave --ttl away to adopt it, or change max_age");
  }, TEST_MS);

  test("that was taken away names the one that the agent goes by", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server, ["--ttl", "6s"]);
    await setTtl(server, 0);
    expect(await contradiction(agent)).toEndWith("Set max_age to 6s");
    await setTtl(server, 6_000);
    await healthy(agent);
  }, TEST_MS);
});
