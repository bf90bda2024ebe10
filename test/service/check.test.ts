/**
 * Each named check, failing for real: what `--check` and `/readyz` say then, with what to do, and that
 * it is over once that was done.
 */
import { describe, expect, test } from "bun:test";
import { mkdirSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { canStepServers, stepWallClock } from "../chaos/wall_clock.ts";
import { Admin } from "../support/admin.ts";
import { freePort, NatsServer, natsServerPath } from "../support/nats.ts";
import { RealAgent, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

/** An agent and its pages. */
async function start(nats: string, flags: readonly string[] = [], awaitReady = true) {
  const http = `127.0.0.1:${await freePort()}`;
  const agent = await RealAgent.start({
    node: "alpha",
    nats,
    flags: ["--http", http, ...flags],
    awaitReady,
  });
  return Object.assign(agent, { http });
}
type Watched = Awaited<ReturnType<typeof start>>;

/** Waits until the check fails, and makes sure that all who ask are told so; returns the line. */
async function fails(agent: Watched, name: string, advice: RegExp): Promise<string> {
  const line = await until(`${name} fails`, async () => {
    const { status, stdout } = await runClient(agent, ["--check"]);
    return status === 1 && stdout.includes(`; ${name}: `) && stdout;
  }, 30_000);
  expect(line).toMatch(/^unhealthy; [^\n]*\n$/);
  const [, message] = new RegExp(`; ${name}: ([^\n]*)`).exec(line)!;
  expect(message).toMatch(advice);
  const page = await until("the page says so", async () => {
    const response = await fetch(`http://${agent.http}/readyz`);
    return response.status === 503 && (await response.text()).includes(`; ${name}: `);
  });
  expect(page).toBe(true);
  const json = JSON.parse((await runClient(agent, ["--check", "--json"])).stdout);
  expect(json.checks).toContainEqual({ name, ok: false, message: expect.stringMatching(advice) });
  const { stdout, status } = await runClient(agent, ["status"]);
  expect(stdout).toContain("not healthy");
  expect(stdout).toContain(`FAIL ${name}: `);
  expect(status).toBe(0);
  return line;
}

async function isWell(agent: Watched): Promise<void> {
  await until("it is well again", async () => {
    const { status, stdout } = await runClient(agent, ["--check"]);
    return status === 0 && stdout.startsWith("healthy: alpha holds ");
  }, 45_000);
  expect((await fetch(`http://${agent.http}/readyz`)).status).toBe(200);
}

describe.concurrent("--check", () => {
  test("names the coordinator that went", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server.url);
    await server.kill();
    await fails(agent, "coordinator", /connection|connect/);
    await server.restart();
    await isWell(agent);
  }, TEST_MS);

  test("claims nothing of a coordinator that was not reached, or is not there now", async () => {
    await using server = await NatsServer.start();
    await server.kill();
    await using agent = await start(server.url, [], false);
    await agent.logged("listening");
    const said = async () => {
      const { checks } = JSON.parse((await runClient(agent, ["status", "--json"])).stdout);
      const names = ["bucket", "writes", "renewals", "duplicate_node", "server_version"];
      return names.map((name) => {
        const { ok, message } = checks.find((each: { name: string }) => each.name === name);
        return `${ok ? "ok" : "FAIL"} ${name}: ${message}`;
      });
    };
    expect(await said()).toEqual([
      "ok bucket: not seen yet",
      "ok writes: none yet",
      "ok renewals: none yet",
      "ok duplicate_node: nobody was seen yet",
      "ok server_version: not known",
    ]);
    await server.restart();
    await isWell(agent);
    const [bucket, ...others] = await said();
    expect([bucket, ...others.slice(0, 3)]).toEqual([
      "ok bucket: as this agent was told",
      "ok writes: taken",
      "ok renewals: in time",
      "ok duplicate_node: nobody else uses this node's name",
    ]);
    await server.kill();
    await fails(agent, "coordinator", /connection|connect/);
    expect((await said()).slice(0, 3)).toEqual([
      "ok bucket: as this agent was told, when it was seen last",
      "ok writes: none without a connection",
      "ok renewals: none without a connection",
    ]);
  }, TEST_MS);

  test("names the bucket that contradicts an agent which met it after READY", async () => {
    await using server = await NatsServer.start();
    await using other = await RealAgent.start({
      node: "beta",
      nats: server.url,
      flags: ["--ttl", "6s"],
    });
    expect(await other.end("SIGTERM")).toBe(0);
    await server.kill();
    await using agent = await start(server.url, ["--ttl", "9s"]);
    expect((await agent.logged("ready")).coordinator).toBe(false);
    const client = await agent.client();
    const status = () => client.call("status", {});
    expect(await status()).toMatchObject({ state: "starting", ttl_ms: null, grace_ms: null });
    await fails(agent, "coordinator", /reach|connect/);
    await server.restart();
    const line = await fails(agent, "bucket", /TTL of 6s.*9s/);
    expect(line).toMatch(/^unhealthy; coordinator: reached, but not used: see bucket; bucket: /);
    expect(await status()).toMatchObject({ state: "starting", ttl_ms: null });
    await using admin = await Admin.connect(server.url);
    await admin.jsm.streams.update("KV_leases", { max_age: 9e9 });
    await isWell(agent);
    expect(await status()).toMatchObject({ state: "serving", ttl_ms: 9_000 });
    await server.kill();
    await fails(agent, "coordinator", /reach|connect|lost/);
    expect(await status()).toMatchObject({ state: "serving", healthy: false });
  }, 2 * TEST_MS);

  test("names the permissions that were taken away", async () => {
    const config = (allow: string) =>
      `authorization { users: [{ user: agent, password: pw, permissions: {
        publish: { allow: [${allow}] }, subscribe: { allow: ["_INBOX.>"] } } }] }`;
    const all = '"$KV.>", "$JS.>"';
    await using server = await NatsServer.start({ config: config(all) });
    const password = join(server.dir, "password");
    writeFileSync(password, "pw\n");
    const flags = ["--user", "agent", "--password-file", password, "--ttl", "3s"];
    await using agent = await start(server.url, flags);
    agent.makeStore("one");
    expect((await runClient(agent, ["held", "one"])).status).toBe(0);
    await server.reload(config('"$JS.>"'));
    await fails(agent, "permissions", /\$KV\.leases\.>/);
    await server.reload(config(all));
    await isWell(agent);
  }, TEST_MS);

  test("names renewals that are not acknowledged", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server.url, ["--ttl", "6s"]);
    expect((await runClient(agent, ["held", "one"])).status).toBe(0);
    server.freeze();
    await fails(
      agent,
      "renewals",
      /not acknowledged for \d+ ms.*(?:has a leader|reason that `coordinator` gives)/,
    );
    server.thaw();
    await isWell(agent);
  }, TEST_MS);

  test("names the lock path that is gone", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server.url);
    rmdirSync(agent.locks);
    await fails(
      agent,
      "lock_path",
      new RegExp(`${agent.locks} of --lock-path does not exist; create`),
    );
    mkdirSync(agent.locks);
    await isWell(agent);
  }, TEST_MS);

  test("names the state directory whose lock file was removed", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server.url);
    rmSync(join(agent.state, "lock"));
    await fails(agent, "state_dir", /lock.*restart/s);
  }, TEST_MS);

  test("names the node whose name another agent uses, on both", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server.url, ["--ttl", "3s", "--address", "http://first:1"]);
    await using clone = await start(server.url, ["--ttl", "3s"]);
    expect((await runClient(agent, ["held", "one"])).status).toBe(0);
    expect((await runClient(clone, ["held", "two"])).status).toBe(0);
    expect((await runClient(agent, ["held", "two"])).status).toBe(1);
    expect((await runClient(clone, ["held", "one"])).status).toBe(1);
    const name = "give each host a name of its own \\(--node\\)";
    // Which one it is, by its address where it has one.
    const { incarnation } = await (await clone.client()).call("status", {});
    await fails(
      agent,
      "duplicate_node",
      new RegExp(
        `agent \\(incarnation ${incarnation}\\) uses this node's name and holds two; ${name}`,
      ),
    );
    await fails(
      clone,
      "duplicate_node",
      new RegExp(`agent \\(http://first:1\\) uses this node's name and holds one; ${name}`),
    );
    const guarded = await runClient(clone, ["guard", "one", "--", "true"]);
    expect(guarded.stderr).toContain("calls itself alpha, too (http://first:1), holds it");
    // As the manual has it: the clone gets a name of its own, and forgets what is not its own.
    await clone.end("SIGTERM");
    await using renamed = await RealAgent.start({
      node: "beta",
      nats: server.url,
      flags: ["--ttl", "3s"],
    });
    await isWell(agent);
    expect((await runClient(renamed, ["--check"])).stdout).toStartWith("healthy: beta ");
  }, TEST_MS);

  test("names the server version that an agent met after READY", async () => {
    const port = await freePort();
    await using agent = await start(`nats://127.0.0.1:${port}`);
    expect((await agent.logged("ready")).coordinator).toBe(false);
    await using server = await NatsServer.start({ program: natsServerPath("bookworm"), port });
    await fails(agent, "server_version", /2\.9\.10.*Upgrade it/);
    await server.kill();
    await using newer = await NatsServer.start({ port });
    await isWell(agent);
    expect((await runClient(agent, ["status"])).stdout).toContain("ok   server_version: 2.");
    await newer.kill();
  }, TEST_MS);

  test("names the epoch of a coordinator that has lost its past", async () => {
    await using server = await NatsServer.start();
    await using agent = await start(server.url, ["--ttl", "3s"]);
    await using admin = await Admin.connect(server.url);
    const record = { node: "beta", incarnation: "i-of-beta", address: null, epoch: 2 ** 52 };
    const acquired_at = new Date().toISOString();
    await admin.put("leases-tenures", "one", JSON.stringify({ ...record, acquired_at }));
    agent.makeStore("one");
    await runClient(agent, ["guard", "one", "--", "true"]);
    await fails(
      agent,
      "epoch",
      /gone back in time for one: .*restore its newest data.*stop all agents, delete both buckets/,
    );
  }, TEST_MS);

  test.skipIf(!canStepServers)("warns of a clock that is off, and is healthy", async () => {
    await using server = await NatsServer.start();
    server.freeze();
    stepWallClock(server.pid, 90);
    server.thaw();
    await using agent = await start(server.url);
    const { status, stdout } = await runClient(agent, ["--check"]);
    expect(status).toBe(0);
    expect(stdout).toMatch(
      /^healthy: .*; warning: the coordinator's clock is (?:89|90)\.\d s ahead of this host's; sync/,
    );
    const page = await runClient(agent, ["status"]);
    expect(page.stdout).toContain("ok   clock: the coordinator's clock is ");
    expect(page.stdout).toContain("warning the coordinator's clock is ");
  }, TEST_MS);
});
