import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nkeys } from "@nats-io/transport-node";
import { CredentialsError, readCredentials } from "../../src/nats/credentials.ts";
import { checkOptions, withoutSecrets } from "../../src/nats/options.ts";
import { value } from "../contract/coordinator.ts";
import { makeAuthority } from "../support/certificate.ts";
import { NatsServer } from "../support/nats.ts";
import { Operator } from "../support/operator.ts";
import { plainClock, plainTimers } from "../support/plain_clock.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "nats-creds-"));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function file(name: string, content: string): string {
  const path = join(dir, name);
  writeFileSync(path, content, { mode: 0o600 });
  return path;
}

describe("readCredentials()", () => {
  test("names the file when it cannot be read, or is not what it should be", () => {
    const bad = file("bad", "nothing of the kind");
    const read = (files: object) => () => readCredentials(files, false);
    expect(read({ creds: "/nowhere/creds" })).toThrow(CredentialsError);
    expect(read({ creds: "/nowhere/creds" })).toThrow("/nowhere/creds");
    expect(read({ creds: bad })).toThrow(`${bad} is not a credentials file`);
    expect(read({ nkey: bad })).toThrow(`${bad} is not an nkey seed`);
    expect(read({ user: "u" })).toThrow("--password-file");
    expect(read({ tlsCert: bad })).toThrow("needs its key");
  });

  test("takes a password as it is, but for the line break at its end", () => {
    for (const end of ["", "\n", "\r\n"]) {
      const passwordFile = file("blanks", ` p w\t ${end}`);
      const { authenticators } = readCredentials({ user: "u", passwordFile }, false);
      expect(authenticators.map((each) => each())).toEqual([{ user: "u", pass: " p w\t " }]);
    }
  });

  test("has another fingerprint when a file changed", () => {
    const passwordFile = file("changing", "one");
    const before = readCredentials({ user: "u", passwordFile }, false).fingerprint;
    expect(readCredentials({ user: "u", passwordFile }, false).fingerprint).toBe(before);
    file("changing", "two");
    expect(readCredentials({ user: "u", passwordFile }, false).fingerprint).not.toBe(before);
  });
});

describe("checkOptions()", () => {
  const good = {
    urls: ["nats://127.0.0.1:4222", "tls://nats.example:4222", "host", "[::1]:4222"],
    node: "n",
    incarnation: "i",
    address: null,
    clock: plainClock,
    timers: plainTimers,
  };

  test("takes URLs with and without scheme and port", () => {
    expect(() => checkOptions(good)).not.toThrow();
  });

  test.each([
    ["no URL", { urls: [] }, "No NATS URL"],
    ["a URL of another kind", { urls: ["http://x"] }, "no NATS URL"],
    ["credentials in a URL", { urls: ["nats://me:secret@x"] }, "carries credentials"],
    ["a bucket with a dot", { bucket: "a.b" }, "no bucket name"],
    ["a bucket whose stream's name is too long", { bucket: "b".repeat(245) }, "1 to 244 of"],
    ["no replicas", { replicas: 0 }, "0 replicas"],
    ["a TTL of nothing", { ttlMs: 0 }, "too short"],
    ["a node with a line break", { node: "a\nb" }, "printable ASCII"],
    ["an empty node", { node: "" }, "printable ASCII"],
    ["an address that adds a header", { address: "x\r\nKV-Operation: DEL" }, "printable ASCII"],
  ])("refuses %s", (_name, change, message) => {
    expect(() => checkOptions({ ...good, ...change })).toThrow(message);
  });

  test("does not show a secret when it refuses a URL", () => {
    const secret = { ...good, urls: ["nats://me:secret@x"] };
    expect(() => checkOptions(secret)).toThrow(/^(?!.*secret).*carries credentials/);
    expect(withoutSecrets("nats://me:secret@x:1")).toBe("nats://…@x:1");
    expect(withoutSecrets("nats://me:sec/r@t@x:1")).toBe("nats://…@x:1");
  });
});

describe("NatsCoordinator with credentials", () => {
  test("uses a user's JWT, and reads a new one when the old one expires", async () => {
    const operator = new Operator();
    await using server = await NatsServer.start({ config: operator.config() });
    const creds = file("user.creds", operator.creds(3));
    await using subject = await Subject.connect({ urls: [server.url], credentials: { creds } });
    value(await subject.put("s", 0));
    file("user.creds", operator.creds());
    await until("it is thrown out", () => subject.told.connections.includes(false));
    await subject.connected();
    value(await subject.put("t", 0));
    expect(subject.told.connections).toEqual([true, false, true]);
  }, TEST_MS);

  test("signs with an nkey", async () => {
    const user = nkeys.createUser();
    const nkey = file("user.nk", new TextDecoder().decode(user.getSeed()) + "\n");
    await using server = await NatsServer.start({
      config: `authorization { users: [{ nkey: ${user.getPublicKey()} }] }`,
    });
    await using subject = await Subject.connect({ urls: [server.url], credentials: { nkey } });
    value(await subject.put("s", 0));
  }, TEST_MS);

  test(
    "reload() changes over to new credentials, and stays with the old when the new are refused",
    async () => {
      const users = `authorization { users: [
      { user: agent, password: one }, { user: agent2, password: two } ] }`;
      await using server = await NatsServer.start({ config: users });
      const passwordFile = file("password", "one\n");
      await using subject = await Subject.connect({
        urls: [server.url],
        credentials: { user: "agent", passwordFile },
      });
      const connections = async () => (await server.monitor("varz")).total_connections;
      await subject.nats.reload();
      expect(await connections()).toBe(1); // Nothing changed: nothing done.

      file("password", "wrong\n");
      const refused = await subject.nats.reload().catch((error) => error.message);
      expect(refused).toContain("refuses our credentials");
      expect(subject.nats.warnings.map(({ check }) => check)).toContain("authentication");
      expect(subject.told).toMatchObject({ problems: [], connections: [true] });
      value(await subject.put("s", 0));

      file("password", "one"); // The same password in other bytes: a change of the file.
      await subject.nats.reload();
      await until("it uses the new connection", () => subject.told.connections.length === 3);
      expect(subject.told.connections).toEqual([true, false, true]);
      expect(subject.nats.warnings.map(({ check }) => check)).not.toContain("authentication");
      value(await subject.put("t", 0));
    },
    TEST_MS,
  );

  test("says which file is missing, keeps trying, and starts when it is there", async () => {
    await using server = await NatsServer.start({
      config: "authorization { users: [{ user: agent, password: pw }] }",
    });
    const passwordFile = join(dir, "later");
    await using subject = Subject.start({
      urls: [server.url],
      credentials: { user: "agent", passwordFile },
    });
    expect((await subject.problem("credentials")).message).toContain(passwordFile);
    file("later", "pw");
    await subject.connected();
  }, TEST_MS);
});

describe("NatsCoordinator over TLS", () => {
  const authority = makeAuthority("test authority");
  const other = makeAuthority("another authority");
  let server: NatsServer;
  let ca: string;

  beforeAll(async () => {
    const { cert, key } = authority.issue("server");
    ca = file("ca.pem", authority.cert);
    server = await NatsServer.start({
      config: `tls { cert_file: "${file("server.pem", cert)}", key_file: "${
        file("server.key", key)
      }", ca_file: "${ca}", verify: true }`,
    });
  }, TEST_MS);
  afterAll(async () => await server.stop());

  function clientFiles(issuer = authority) {
    const { cert, key } = issuer.issue("client");
    return { tlsCert: file("client.pem", cert), tlsKey: file("client.key", key) };
  }

  test("verifies the server and shows its own certificate", async () => {
    await using subject = await Subject.connect({
      urls: [server.url.replace("nats:", "tls:")],
      credentials: { tlsCa: ca, ...clientFiles() },
    });
    value(await subject.put("s", 0));
    expect(subject.nats.stats().server).toStartWith("tls://");
  }, TEST_MS);

  test("does not talk to a server that another authority vouches for", async () => {
    const tlsCa = file("other.pem", other.cert);
    await using subject = Subject.start({
      urls: [server.url],
      credentials: { tlsCa, ...clientFiles() },
    });
    expect((await subject.problem("tls")).message).toMatch(/certificate|verif/i);
    expect(subject.nats.stats().connected).toBe(false);
  }, TEST_MS);

  test("does not talk in the clear when the URL says tls", async () => {
    await using clear = await NatsServer.start();
    await using subject = Subject.start({ urls: [clear.url.replace("nats:", "tls:")] });
    expect((await subject.problem("tls")).message).toContain("tls");
    expect(subject.nats.stats().connected).toBe(false);
  }, TEST_MS);
});
