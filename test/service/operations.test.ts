/** The server configuration in docs/operations.md, as it stands there, with real servers and agents. */
import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "@nats-io/transport-node";
import { jetstreamManager } from "@nats-io/jetstream";
import { Admin } from "../support/admin.ts";
import { freePort, NatsServer, natsServerPath } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MANUAL = readFileSync(join(import.meta.dir, "../../docs/operations.md"), "utf8");
const CONFIG = /```text\n(server_name: n1\n[\s\S]*?)```/.exec(MANUAL)![1]!;

/** The manual's configuration for server `n` of three, with places of this machine. */
function configOf(n: number, dir: string, ports: readonly number[]): string {
  const [clients, monitor, routes] = [ports[n - 1]!, ports[n + 2]!, ports.slice(6)];
  return CONFIG
    .replace("server_name: n1", `server_name: n${n}`)
    .replace('"0.0.0.0:4222"', `"127.0.0.1:${clients}"`)
    .replace('"127.0.0.1:8222"', `"127.0.0.1:${monitor}"`)
    .replace("/var/lib/nats", join(dir, `js${n}`))
    .replace('"0.0.0.0:6222"', `"127.0.0.1:${routes[n - 1]}"`)
    .replaceAll(
      /nats:\/\/n(\d):6222/g,
      (_, each) => `nats://127.0.0.1:${routes[Number(each) - 1]}`,
    );
}

/** Everything that agents do with NATS: verify, renew, watch, look up, hand over, take over. */
async function worksFully(alpha: RealAgent, beta: RealAgent, token: string): Promise<void> {
  await using _ = beta;
  const [mine, theirs] = [await alpha.client(), await beta.client()];
  const store = "one";
  expect(await mine.call("verify", { token, store })).toMatchObject({ store });
  await alpha.logged("renewed", { store });
  const changes: string[] = [];
  theirs.onNotification(({ method, params }) => {
    if (method === "lease") changes.push(params.state);
  });
  await theirs.call("watch", { stores: [store] });
  expect((await refusal(theirs.call("guard", { store }))).kind).toBe("not_holder");
  expect(await theirs.call("holder", { store })).toMatchObject({ state: "other", node: "alpha" });
  await mine.call("release", { token });
  expect(await mine.call("stepdown", { store, for_ms: 2_000 })).toEqual({
    released: 1,
    remaining: 0,
  });
  await theirs.call("guard", { store, wait_lease: true, wait_ms: 20_000 });
  await until("the watch tells of it", () => changes.includes("self"));
  expect((await theirs.call("history", { store })).tenures.map(({ node }) => node))
    .toEqual(["beta", "alpha"]);
  // Killed, and what it held is taken over, with the grace that is owed.
  await beta.end("SIGKILL");
  await until("alpha does not leave it alone any more", async () => {
    const { kind } = await refusal(mine.call("guard", { store }));
    return kind !== "draining";
  });
  await mine.call("guard", { store, wait_lease: true, wait_ms: 30_000 });
  for (const agent of [alpha, beta]) {
    expect(agent.log().filter(({ check }) => check === "permissions")).toEqual([]);
  }
}

test(
  "the configuration for a lease cluster serves agents, and lets them do nothing else",
  async () => {
    using dir = tempDir();
    const ports = await Promise.all(Array.from({ length: 9 }, freePort));
    const servers = [1, 2, 3].map((n) => {
      const file = join(dir.path, `n${n}.conf`);
      writeFileSync(file, configOf(n, dir.path, ports));
      const child = Bun.spawn([natsServerPath(), "-c", file], {
        stdout: "ignore",
        stderr: Bun.file(join(dir.path, `log${n}`)),
      });
      reap(child.pid);
      return child;
    });
    try {
      await until("all three are healthy", async () => {
        const healthy = await Promise.all(
          [3, 4, 5].map((i) =>
            fetch(`http://127.0.0.1:${ports[i]}/healthz`).then((answer) => answer.ok, () => false)
          ),
        );
        return healthy.every(Boolean);
      }, 60_000);
      const password = join(dir.path, "password");
      writeFileSync(password, "change-me\n");
      mkdirSync(join(dir.path, "locks/one"), { recursive: true });
      const start = (node: string) =>
        RealAgent.start({
          node,
          nats: ports.slice(0, 3).map((port) => `nats://127.0.0.1:${port}`).join(","),
          locks: join(dir.path, "locks"),
          flags: ["--user", "agent", "--password-file", password, "--ttl", "6s"],
        });
      await using agent = await start("alpha");
      const client = await agent.client();
      await until("it is healthy", async () => (await client.call("status", {})).healthy);
      // The buckets are new: their leaders may still be being elected, which is told as unavailable.
      const { token } = await until(
        "a guard is granted",
        () =>
          client.call("guard", { store: "one" }).catch((error) => {
            if (error.kind !== "unavailable") throw error;
            return null;
          }),
      );
      expect((await client.call("status", {})).warnings).toEqual([]);
      expect((await client.call("history", { store: "one" })).tenures).toHaveLength(1);
      const created = agent.log().filter(({ event }) => event === "bucket_created");
      expect(JSON.stringify(created)).toContain("3 replicas");
      await worksFully(agent, await start("beta"), token);
      // Not once did a server deny anything.
      const violations = () =>
        [1, 2, 3].map((n) => readFileSync(join(dir.path, `log${n}`), "utf8")).join("")
          .split("\n").filter((line) => line.includes("Violation"));
      expect(violations()).toEqual([]);

      const servedBy = `127.0.0.1:${ports[0]}`;
      const nc = await connect({ servers: servedBy, user: "agent", pass: "change-me" });
      const jsm = await jetstreamManager(nc, { checkAPI: false, timeout: 1_000 });
      const forbidden = await jsm.streams.delete("KV_leases").then(
        () => "deleted",
        (error) => `${error}`,
      );
      expect(forbidden).toMatch(/permission/i);
      await until("the server says so", () => violations().length > 0);
      await nc.close();
      const stranger = connect({
        servers: servedBy,
        user: "agent",
        pass: "wrong",
        reconnect: false,
      });
      await expect(stranger).rejects.toThrow(/authorization/i);
    } finally {
      for (const child of servers) {
        child.kill("SIGKILL");
        await child.exited;
        reaped(child.pid);
      }
    }
  },
  120_000,
);

test("the manual tells of each check, and of no other", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  const { checks } = await (await agent.client()).call("status", {});
  // Those that are there only when they fail.
  const sources = [
    "agent/health.ts",
    "agent/agent.ts",
    "daemon/status.ts",
    "daemon/stepdown_status.ts",
    "daemon/coordinators.ts",
  ]
    .map((path) => readFileSync(join(import.meta.dir, "../../src", path), "utf8")).join();
  const failing = [
    ...sources.matchAll(/\breport\(\s*"(\w+)"/g),
    ...sources.matchAll(/^ {2}(\w+): \(stores: string\)/gm),
    ...sources.matchAll(/\{ name: "(\w+)", ok: false/g),
  ].map(([, name]) => name!);
  const names = new Set([...checks.map(({ name }) => name), ...failing]);
  expect(names.size).toBeGreaterThan(13);
  const table = MANUAL.slice(MANUAL.indexOf("### Checks"), MANUAL.indexOf("### Alerts"));
  const rows = [...table.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name!);
  expect(rows.toSorted()).toEqual([...names].sort());
});

test(
  "without the right to create streams agents work, and a lost bucket stays lost until somebody looks",
  async () => {
    const [, allow] = /publish \{\s+allow: \[([^\]]*)\]/.exec(CONFIG)!;
    const config = (allowed: string) =>
      `accounts { L { jetstream: enabled, users: [
      { user: agent, password: pw, permissions {
        publish { allow: [ ${allowed} ] }, subscribe { allow: [ "_INBOX.>" ] } } }
      { user: admin, password: pw } ] } }`;
    await using server = await NatsServer.start({ config: config(allow!) });
    const password = join(server.dir, "password");
    writeFileSync(password, "pw\n");
    const start = () =>
      RealAgent.start({
        node: "alpha",
        nats: server.url,
        flags: ["--user", "agent", "--password-file", password, "--ttl", "3s"],
      });
    {
      await using first = await start(); // makes the buckets
      expect(await first.end("SIGTERM")).toBe(0);
    }
    const less = allow!.replace('"$JS.API.STREAM.CREATE.*"', "");
    expect(less).not.toBe(allow!);
    await server.reload(config(less));
    await using agent = await start();
    agent.makeStore("one");
    const client = await agent.client();
    await client.call("release", await client.call("guard", { store: "one" }));
    expect((await client.call("status", {})).healthy).toBe(true);

    await using admin = await Admin.connect(server.url, { user: "admin", pass: "pw" });
    await admin.jsm.streams.delete("KV_leases");
    const check = await until("--check says so", async () => {
      const { status, stdout } = await runClient(agent, ["--check"]);
      return status === 1 && /STREAM\.CREATE/.test(stdout) && stdout;
    }, 75_000);
    expect(check).toContain("leases");
    await expect(admin.jsm.streams.info("KV_leases")).rejects.toThrow(/not found/);
    await server.reload(config(allow!));
    await until("it is made again", async () => (await client.call("status", {})).healthy, 75_000);
  },
  180_000,
);
