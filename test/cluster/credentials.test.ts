/**
 * Each way to prove to NATS who one is, end to end: a real server that demands it, a real agent that
 * guards with it, and none without it.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { nkeys } from "@nats-io/transport-node";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeAuthority } from "../support/certificate.ts";
import { NatsServer } from "../support/nats.ts";
import { Operator } from "../support/operator.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";

const TEST_MS = 60_000;

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "credentials-"));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function file(name: string, content: string): string {
  const path = join(dir, name);
  writeFileSync(path, content, { mode: 0o600 });
  return path;
}

/** Guards and verifies with the flags, through a command too; and not without them. */
async function guardsOnlyWith(server: NatsServer, flags: string[], scheme = "nats"): Promise<void> {
  const nats = server.url.replace("nats:", `${scheme}:`);
  {
    await using agent = await RealAgent.start({ node: "alpha", nats, flags });
    agent.makeStore("one");
    const client = await agent.client();
    const { token, unguarded } = await client.call("guard", { store: "one" });
    expect(unguarded).toBeNull();
    expect((await client.call("verify", { token, store: "one" })).remaining_ms).toBeGreaterThan(0);
    await client.call("release", { token });
    const guarded = await runClient(agent, ["guard", "one", "--", "sh", "-c", "exit 7"]);
    expect(guarded.status).toBe(7);
    expect((await runClient(agent, ["--check"])).status).toBe(0);
    expect(await agent.end("SIGTERM")).toBe(0);
  }
  await using without = await RealAgent.start({ node: "beta", nats: server.url });
  without.makeStore("one");
  const { kind } = await refusal((await without.client()).call("guard", { store: "one" }));
  expect(kind).toBe("unavailable");
  expect((await runClient(without, ["--check"])).status).toBe(1);
}

describe.concurrent("an agent guards with", () => {
  test("user and password", async () => {
    await using server = await NatsServer.start({
      config: "authorization { users: [{ user: agent, password: secret }] }",
    });
    const password = file("password", "secret\n");
    await guardsOnlyWith(server, ["--user", "agent", "--password-file", password]);
  }, TEST_MS);

  test("an nkey", async () => {
    const user = nkeys.createUser();
    await using server = await NatsServer.start({
      config: `authorization { users: [{ nkey: ${user.getPublicKey()} }] }`,
    });
    const seed = file("user.nk", new TextDecoder().decode(user.getSeed()) + "\n");
    await guardsOnlyWith(server, ["--nkey", seed]);
  }, TEST_MS);

  test("creds, a JWT with its seed", async () => {
    const operator = new Operator();
    await using server = await NatsServer.start({ config: operator.config() });
    await guardsOnlyWith(server, ["--creds", file("user.creds", operator.creds())]);
  }, TEST_MS);

  test("TLS and a certificate of its own", async () => {
    const authority = makeAuthority("authority");
    const [ours, theirs] = [authority.issue("agent"), authority.issue("server")];
    const ca = file("ca.pem", authority.cert);
    await using server = await NatsServer.start({
      config: `tls { cert_file: "${file("server.pem", theirs.cert)}", key_file: "${
        file("server.key", theirs.key)
      }", ca_file: "${ca}", verify: true }`,
    });
    const flags = ["--tls-ca", ca, "--tls-cert", file("agent.pem", ours.cert)];
    await guardsOnlyWith(server, [...flags, "--tls-key", file("agent.key", ours.key)], "tls");
  }, TEST_MS);

  test("TLS and a password together", async () => {
    const authority = makeAuthority("authority");
    const theirs = authority.issue("server");
    await using server = await NatsServer.start({
      config: `tls { cert_file: "${file("both.pem", theirs.cert)}", key_file: "${
        file("both.key", theirs.key)
      }" }
      authorization { users: [{ user: agent, password: secret }] }`,
    });
    const ca = file("both-ca.pem", authority.cert);
    const password = file("both-password", "secret\n");
    const flags = ["--tls-ca", ca, "--user", "agent", "--password-file", password];
    await guardsOnlyWith(server, flags, "tls");
  }, TEST_MS);
});

test(
  "an agent goes on with new credentials when the old ones are revoked, keeping its lease (nats.node#532)",
  async () => {
    const users = (name: string) => `authorization { users: [{ user: ${name}, password: pw }] }`;
    await using server = await NatsServer.start({ config: users("agent") });
    const password = file("rotated", "pw\n");
    await using agent = await RealAgent.start({
      node: "alpha",
      nats: server.url,
      flags: ["--user", "agent", "--password-file", password, "--ttl", "20s"],
    });
    agent.makeStore("one");
    const client = await agent.client();
    const { token, epoch } = await client.call("guard", { store: "one" });
    const before = agent.log().length;
    await server.reload(users("nobody"));
    await agent.logged("problem", { check: "coordinator" }, before);
    await server.reload(users("agent"));
    await agent.logged("problem_over", { check: "coordinator" }, before);
    expect((await client.call("verify", { token, store: "one" })).epoch).toBe(epoch);
  },
  TEST_MS,
);
