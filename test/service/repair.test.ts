/** What the manual has operators do about buckets, done: each command's own request is made. */
import { expect, test } from "bun:test";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Kvm } from "@nats-io/kv";
import { Admin } from "../support/admin.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";

test(
  "the TTL is changed, and a coordinator that lost its past is put right, as the manual says",
  async () => {
    await using server = await NatsServer.start();
    await using admin = await Admin.connect(server.url);
    using dir = tempDir();
    const locks = join(dir.path, "locks");
    mkdirSync(join(locks, "one"), { recursive: true });
    const start = (...flags: string[]) =>
      RealAgent.start({ node: "alpha", nats: server.url, locks, flags });
    const guard = async (agent: RealAgent) => {
      const client = await agent.client();
      const { token, epoch } = await client.call("guard", { store: "one" });
      await client.call("release", { token });
      return epoch;
    };
    let before: number;
    {
      await using agent = await start("--ttl", "6s");
      before = await guard(agent);
      expect(await agent.end("SIGTERM")).toBe(0); // "stop all agents"
    }
    await admin.jsm.streams.delete("KV_leases"); // "nats kv del leases"
    {
      await using agent = await start("--ttl", "7s");
      const epoch = await guard(agent); // without a grace: the last tenure was released
      expect(epoch).toBeGreaterThan(before);
      before = epoch;
      expect((await (await agent.client()).call("status", {})).ttl_ms).toBe(7_000);
      expect(await agent.end("SIGTERM")).toBe(0);
    }
    // Somebody restores the bucket with another program, and its revisions begin at 1 again.
    await admin.jsm.streams.delete("KV_leases");
    await new Kvm(admin.nc).create("leases", { ttl: 7_000, history: 1 });
    {
      await using agent = await start();
      const client = await agent.client();
      expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("stale_epoch");
      const { status, stdout } = await runClient(agent, ["--check"]);
      expect([status, stdout]).toEqual([1, expect.stringContaining("gone back in time for one")]);
      // What is done below, as in the manual.
      expect(stdout).toContain("stop all agents, delete both buckets");
      // "has the epoch and the node of its last writer"
      expect(JSON.parse(readFileSync(join(locks, "one/lease.lock"), "utf8")))
        .toMatchObject({ epoch: before, node: "alpha" });
      expect(await agent.end("SIGTERM")).toBe(0);
    }
    for (const bucket of ["leases", "leases-tenures"]) {
      await admin.jsm.streams.delete(
        `KV_${bucket}`,
      );
    }
    await using agent = await start("--ttl", "7s");
    expect(await guard(agent)).toBeGreaterThan(before);
    expect((await runClient(agent, ["--check"])).status).toBe(0);
  },
  90_000,
);
