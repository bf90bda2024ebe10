/**
 * SIGHUP with credential files of each kind: what cannot be read or used leaves the old in force, what
 * can be is used from then on; and whatever was in the files is in no output.
 */
import { describe, expect, test } from "bun:test";
import { nkeys } from "@nats-io/transport-node";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeAuthority } from "../support/certificate.ts";
import { freePort, NatsCluster, NatsServer } from "../support/nats.ts";
import { Operator } from "../support/operator.ts";
import { RealAgent, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 90_000;

/** A file, as it was at first and as it becomes. */
interface Files {
  readonly path: string;
  /** Contents that leave the old in force. */
  readonly bad: readonly string[];
  /** Contents that are used from then on. */
  readonly good: string;
}

/** Every connection that the server has of agents, by its number. */
async function connections(server: NatsServer): Promise<number[]> {
  const { connections } = await server.monitor("connz");
  return connections.map(({ cid }: { cid: number }) => cid);
}

/** Goes through the contents, with SIGHUP for each. */
async function reloads(
  server: NatsServer,
  { flags, files, scheme = "nats" }: { flags: string[]; files: Files; scheme?: string },
): Promise<string> {
  const http = `127.0.0.1:${await freePort()}`;
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: server.url.replace("nats:", `${scheme}:`),
    flags: [...flags, "--ttl", "6s", "--http", http],
  });
  agent.makeStore("one");
  const client = await agent.client();
  const { token, epoch } = await client.call("guard", { store: "one" });
  let told = "";
  const before = await connections(server);
  for (const content of [...files.bad, null]) {
    const from = agent.log().length;
    if (content === null) rmSync(files.path);
    else writeFileSync(files.path, content);
    agent.signal("SIGHUP");
    const failed = await agent.logged("reload_failed", { what: "credentials" }, from);
    expect(failed.level).toBe("error");
    const { status, stdout } = await runClient(agent, ["--check"]);
    expect([status, stdout]).toEqual([0, expect.stringContaining("the last reload failed: ")]);
    expect(await client.call("verify", { token, store: "one" })).toMatchObject({ epoch });
    told += stdout + (await runClient(agent, ["status"])).stdout +
      (await runClient(agent, ["status", "--json"])).stdout;
  }
  // The old connection, all the while.
  expect(await connections(server)).toEqual(before);
  const from = agent.log().length;
  writeFileSync(files.path, files.good);
  agent.signal("SIGHUP");
  await agent.logged("reloaded", {}, from);
  expect((await runClient(agent, ["--check"])).stdout).not.toContain("reload");
  const now = await until("it has a new connection", async () => {
    const now = await connections(server);
    return now.length === 1 && now[0] !== before[0] && now;
  });
  expect(now).toHaveLength(1);
  // The tenure goes on.
  expect(await client.call("verify", { token, store: "one" })).toMatchObject({ epoch });
  await client.call("release", { token });
  const guarded = await runClient(agent, ["guard", "one", "--", "true"]);
  for (const page of ["metrics", "readyz"]) {
    told += await (await fetch(`http://${http}/${page}`)).text();
  }
  expect(await agent.end("SIGTERM")).toBe(0);
  told += guarded.stdout + guarded.stderr + readFileSync(join(agent.dir, "log"), "utf8");
  expect(told).not.toContain(token);
  return told;
}

/** What would give it away, of a file: each line that is long enough to be one. */
function secretsOf(...contents: readonly string[]): string[] {
  return contents.flatMap((content) => content.split("\n")).map((line) => line.trim())
    .filter((line) => line.length > 15 && !line.startsWith("--"));
}

function expectNone(told: string, secrets: readonly string[]): void {
  expect(secrets.length).toBeGreaterThan(0);
  expect(told).toContain('"event":"granted"');
  for (const secret of secrets) expect(told).not.toContain(secret);
}

describe.concurrent("SIGHUP reads", () => {
  test("creds", async () => {
    using dir = tempDir();
    const operator = new Operator();
    await using server = await NatsServer.start({ config: operator.config() });
    const path = join(dir.path, "agent.creds");
    const first = operator.creds();
    writeFileSync(path, first);
    const stranger = new Operator().creds();
    const cut = first.slice(0, first.indexOf("USER NKEY SEED") + 60);
    const files = { path, bad: [stranger, cut, "not-what-it-should-be"], good: operator.creds() };
    const told = await reloads(server, { flags: ["--creds", path], files });
    expectNone(told, secretsOf(first, stranger, cut, files.good, "not-what-it-should-be"));
  }, TEST_MS);

  test("an nkey", async () => {
    using dir = tempDir();
    const [one, two, stranger] = [nkeys.createUser(), nkeys.createUser(), nkeys.createUser()];
    const users = [one, two].map((user) => `{ nkey: ${user.getPublicKey()} }`).join(", ");
    await using server = await NatsServer.start({ config: `authorization { users: [${users}] }` });
    const seed = (user: typeof one) => `${new TextDecoder().decode(user.getSeed())}\n`;
    const path = join(dir.path, "agent.nk");
    writeFileSync(path, seed(one));
    const files = { path, bad: [seed(stranger), seed(one).slice(0, 30)], good: seed(two) };
    const told = await reloads(server, { flags: ["--nkey", path], files });
    expectNone(told, secretsOf(seed(one), seed(two), ...files.bad));
  }, TEST_MS);

  test("a password", async () => {
    using dir = tempDir();
    const passwords = ["the-first-password", "the-second-password"];
    const config = (password: string) =>
      `authorization { users: [{ user: agent, password: "${password}" }] }`;
    await using server = await NatsServer.start({ config: config(passwords[0]!) });
    const path = join(dir.path, "password");
    writeFileSync(path, `${passwords[0]}\n`);
    const flags = ["--user", "agent", "--password-file", path];
    // The same again, with another end of the line.
    const files = { path, bad: ["not-the-password\n"], good: `${passwords[0]}` };
    const told = await reloads(server, { flags, files });
    expectNone(told, [...passwords, "not-the-password"]);
  }, TEST_MS);

  test("a TLS certificate with its key", async () => {
    using dir = tempDir();
    const [authority, other] = [makeAuthority("authority"), makeAuthority("another")];
    const file = (name: string, content: string) => {
      writeFileSync(join(dir.path, name), content);
      return join(dir.path, name);
    };
    const theirs = authority.issue("server");
    const ca = file("ca.pem", authority.cert);
    await using server = await NatsServer.start({
      config: `tls { cert_file: "${file("server.pem", theirs.cert)}", key_file: "${
        file("server.key", theirs.key)
      }", ca_file: "${ca}", verify: true }`,
    });
    // Certificate and key in one file: both flags may name it, and one write changes both.
    const pair = (from: typeof authority) => {
      const { cert, key } = from.issue("agent");
      return cert + key;
    };
    const first = pair(authority);
    const path = file("agent.pem", first);
    const flags = ["--tls-ca", ca, "--tls-cert", path, "--tls-key", path];
    const half = authority.issue("agent").cert + authority.issue("agent").key;
    const files = {
      path,
      bad: [pair(other), half, "nothing of that kind\n"],
      good: pair(authority),
    };
    const told = await reloads(server, { flags, files, scheme: "tls" });
    const keys = [first, ...files.bad, files.good].flatMap((each) =>
      secretsOf(/-----BEGIN [A-Z ]*KEY-----[\s\S]*/.exec(each)?.[0] ?? "")
    );
    expectNone(told, keys);
  }, TEST_MS);
});

test(
  "credentials that were not reloaded are told of no longer than the old ones are in use",
  async () => {
    using dir = tempDir();
    const config = (password: string) =>
      `authorization { users: [{ user: agent, password: "${password}" }] }`;
    await using server = await NatsServer.start({ config: config("first") });
    const path = join(dir.path, "password");
    writeFileSync(path, "first\n");
    const flags = ["--user", "agent", "--password-file", path];
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url, flags });
    const check = async () => (await runClient(agent, ["--check"])).stdout;
    writeFileSync(path, "");
    agent.signal("SIGHUP");
    await agent.logged("reload_failed", { what: "credentials" });
    expect(await check()).toMatch(/^healthy.*the last reload failed: .*old credentials goes on/);
    // The connection that was made with the old ones ends.
    await server.restart();
    await until("the file is told", async () => {
      const line = await check();
      return line.startsWith("unhealthy; coordinator: ") && line.includes(path);
    });
    expect(await check()).not.toMatch(/reload|goes on/);
    // Without a connection, what cannot be read is not told as read.
    rmSync(path);
    const from = agent.log().length;
    agent.signal("SIGHUP");
    await agent.logged("reload_failed", { what: "credentials" }, from);
    expect(agent.log().slice(from).filter(({ event }) => event === "reloaded")).toEqual([]);
    // It can be read again, and the server refuses what is in it.
    writeFileSync(path, "another\n");
    await until("that is told", async () => (await check()).includes("refuses our credentials"));
    expect(await check()).not.toMatch(/reload|goes on/);
    writeFileSync(path, "first\n");
    await until("it is well", async () => (await check()).startsWith("healthy: alpha holds"));
  },
  TEST_MS,
);

test("credentials that a cluster refuses are told with each of its servers once", async () => {
  using dir = tempDir();
  const path = join(dir.path, "password");
  writeFileSync(path, "right\n");
  await using cluster = await NatsCluster.start(
    3,
    "authorization { users: [{ user: agent, password: right }] }",
  );
  const { urls } = cluster;
  const flags = ["--user", "agent", "--password-file", path];
  await using agent = await RealAgent.start({ node: "alpha", nats: urls.join(","), flags });
  await agent.logged("coordinator_ready"); // it has heard of the others from one of them
  writeFileSync(path, "wrong\n");
  agent.signal("SIGHUP");
  const { message } = await agent.logged("reload_failed", { what: "credentials" });
  const { stdout } = await runClient(agent, ["--check"]);
  for (const text of [message, stdout]) {
    expect(text).toContain(`Cannot connect to the coordinator at ${urls.join(", ")}: 127.0.0.1:`);
    for (const { port } of cluster.servers) {
      // One is named again, as the one that refuses.
      expect(text.split(`:${port}`).length - 1).toBe(
        text.includes(` 127.0.0.1:${port}: it`) ? 2 : 1,
      );
    }
  }
}, TEST_MS);

test("what goes wrong again and again is told five times, then counted", async () => {
  using dir = tempDir();
  const stores = join(dir.path, "stores");
  writeFileSync(stores, "one\n");
  await using agent = await RealAgent.start({ node: "alone", flags: ["--stores", stores] });
  const client = await agent.client();
  for (let i = 0; i < 16; i++) {
    const bad = i % 2 === 0;
    writeFileSync(stores, bad ? "not//a-store\n" : "one\n");
    agent.signal("SIGHUP");
    await until(`reload ${i} is over`, async () => {
      const { warnings } = await client.call("status", {});
      return warnings.some((text) => text.includes("not//a-store")) === bad;
    });
  }
  expect(await agent.end("SIGTERM")).toBe(0);
  const failed = agent.log().filter(({ event }) => event === "reload_failed");
  expect(failed).toHaveLength(6);
  // The newest of those that were held back, told at the end.
  expect(failed.map(({ repeated }) => repeated)).toEqual([...Array(5), 3]);
});
