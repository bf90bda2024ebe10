/**
 * Power failures: what a server acknowledged and did not sync is gone. Each server's streams are on an
 * ext4 of their own that ends without a flush, so it is the file system that forgets.
 */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { AgentError, type Connection } from "../../src/client/mod.ts";
import { Admin } from "../support/admin.ts";
import { NatsCluster, NatsServer } from "../support/nats.ts";
import { noPowerDisk } from "../support/power_disk.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 120_000;

/** Longer than servers take to come back and elect: so that a lease that is lost was lost by them. */
const LONG_TTL = ["--ttl", "60s"];

/** Calls until the coordinator answers: each of its streams elects a leader of its own. */
async function answered<T>(call: () => Promise<T>): Promise<T> {
  const { value } = await until("the coordinator answers", async () => {
    try {
      return { value: await call() };
    } catch (error) {
      if (!(error instanceof AgentError) || error.kind !== "unavailable") throw error;
    }
  }, 60_000);
  return value;
}

/** The epoch in which the token is verified. */
async function verified(client: Connection, token: string): Promise<number> {
  return (await answered(() => client.call("verify", { token, store: "one" }))).epoch;
}

/** Has the agent hold the store `one`, and a grant on it. */
async function guardOne(
  agent: RealAgent,
): Promise<{ client: Connection; token: string; epoch: number }> {
  agent.makeStore("one");
  const client = await agent.client();
  const wait = { wait_ms: 30_000, wait_lease: true };
  const { token, epoch } = await client.call("guard", { store: "one", ...wait });
  return { client, token, epoch };
}

async function epochs(client: Connection): Promise<number[]> {
  const { tenures } = await answered(() => client.call("history", { store: "one" }));
  return tenures.map(({ epoch }) => epoch);
}

function times(agent: RealAgent, event: string): number {
  return agent.log().filter((line) => line.event === event).length;
}

describe.skipIf(noPowerDisk !== null).concurrent("a power failure", () => {
  test(
    "of all servers forgets nothing that was acknowledged with sync_interval: always",
    async () => {
      await using cluster = await NatsCluster.start(3, "", {
        jetstreamConfig: "sync_interval: always",
        ownDisk: true,
      });
      const nats = cluster.urls.join(",");
      await using alpha = await RealAgent.start({ node: "alpha", nats, flags: LONG_TTL });
      const { client, token, epoch } = await guardOne(alpha);
      const { revision } = await client.call("verify", { token, store: "one" });
      await Promise.all(cluster.servers.map((server) => server.powerOff()));
      await Promise.all(cluster.servers.map((server) => server.restart()));
      await cluster.healthy();
      // The same tenure goes on, by a compare-and-set on the revision that was acknowledged.
      expect(await verified(client, token)).toBe(epoch);
      expect(times(alpha, "lost")).toBe(0);
      expect(await epochs(client)).toEqual([epoch]);
      await using admin = await Admin.connect(cluster.urls[0]);
      const { state } = await admin.jsm.streams.info("KV_leases");
      expect(state.last_seq).toBeGreaterThan(revision);
    },
    TEST_MS,
  );

  test("of one server in three loses no lease, though it syncs late", async () => {
    await using cluster = await NatsCluster.start(3, "", { ownDisk: true });
    const nats = cluster.urls.join(",");
    await using alpha = await RealAgent.start({ node: "alpha", nats, flags: LONG_TTL });
    const { client, token, epoch } = await guardOne(alpha);
    const leader = await cluster.leader("KV_leases");
    await leader.powerOff();
    expect(await verified(client, token)).toBe(epoch);
    await leader.restart();
    await cluster.healthy();
    expect(await verified(client, token)).toBe(epoch);
    expect(times(alpha, "lost")).toBe(0);
    expect(await epochs(client)).toEqual([epoch]);
  }, TEST_MS);

  test(
    "of the only copy, synced late, sends the coordinator back in time: what the disk knows better is " +
      "refused as stale_epoch, told, and mended as the manual says (nats-server#7564)",
    async () => {
      using dir = tempDir();
      const locks = join(dir.path, "locks"); // Of one disk that the hosts share.
      const flags = ["--ttl", "3s"];
      await using server = await NatsServer.start({ ownDisk: true });
      const start = (node: string) => RealAgent.start({ node, nats: server.url, locks, flags });
      {
        await using alpha = await start("alpha");
        alpha.makeStore("one");
        const client = await alpha.client();
        const { token } = await client.call("guard", { store: "one" });
        await client.call("release", { token });
        expect(await alpha.end("SIGTERM")).toBe(0);
      }
      server.syncDisk(); // What is written from now on is not on disk for two minutes.
      await using beta = await start("beta");
      const holder = await beta.client();
      // Several tenures are lost: the first one taken after it must not come as far as the last.
      for (let i = 0; i < 5; i++) {
        const { token } = await holder.call("guard", { store: "one", wait_ms: 10_000 });
        await holder.call("release", { token });
        await holder.call("stepdown", { store: "one", for_ms: 0 });
      }
      const { token, epoch } = await holder.call("guard", { store: "one", wait_ms: 10_000 });
      await server.powerOff();
      await server.restart();
      {
        await using admin = await Admin.connect(server.url);
        const { state } = await admin.jsm.streams.info("KV_leases");
        // Else nothing was lost, and this shows nothing.
        expect(state.last_seq).toBeLessThan(epoch);
      }
      // Its entry is gone, so its next write meets a conflict; what it takes anew is older than its disk.
      const lost = await refusal(holder.call("verify", { token, store: "one" }));
      expect(["lost", "unavailable", "no_token"]).toContain(lost.kind);
      await beta.logged("lost", { store: "one" });
      await holder.close();
      // The second one has seen nothing of all that: only the disk has.
      for (const next of [() => beta, () => start("gamma")]) {
        await using agent = await next();
        const client = await agent.client();
        const { kind, error } = await until("it is refused for good", async () => {
          const refused = await refusal(client.call("guard", { store: "one", wait_ms: 1_000 }));
          return !["unavailable", "busy", "not_holder", "grace"].includes(refused.kind) && refused;
        }, 30_000);
        expect(kind).toBe("stale_epoch");
        expect(error.message).toContain(String(epoch));
        expect((await client.call("held", { store: "one" })).held).toBe(false);
        const { status, stdout } = await runClient(agent, ["--check"]);
        expect([status, stdout]).toEqual([1, expect.stringMatching(/(fence|epoch): .*one/)]);
        expect(
          agent.log().some(({ event, check, level }) =>
            event === "problem" && ["fence", "epoch"].includes(check) && level === "error"
          ),
        ).toBe(true);
      }
      expect(JSON.parse(readFileSync(join(locks, "one", "lease.lock"), "utf8")).epoch).toBe(epoch);
      // As docs/operations.md has it: agents stopped, both buckets deleted, agents started.
      {
        await using admin = await Admin.connect(server.url);
        await admin.jsm.streams.delete("KV_leases");
        await admin.jsm.streams.delete("KV_leases-tenures");
      }
      await using delta = await start("delta");
      const grant = await (await delta.client()).call("guard", { store: "one", wait_ms: 10_000 });
      expect(grant.epoch).toBeGreaterThan(epoch);
    },
    TEST_MS,
  );
});
