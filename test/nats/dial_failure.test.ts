/** What is told of a dial that fails: each way for real, with the remedy in its words. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import type { CredentialFiles } from "../../src/nats/options.ts";
import { Admin } from "../support/admin.ts";
import { makeAuthority } from "../support/certificate.ts";
import { freePort, NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 60_000;
const HOUR_MS = 3_600_000;

const dir = tempDir();
const authority = makeAuthority("the right one");
const another = makeAuthority("another one");
let files = 0;

async function file(content: string): Promise<string> {
  const path = join(dir.path, `${files++}.pem`);
  await Bun.write(path, content);
  return path;
}

let ca: string;
beforeAll(async () => {
  ca = await file(authority.cert);
});
afterAll(() => dir[Symbol.dispose]());

/** A server with TLS; `more` are further lines of its block. */
async function tlsServer(more = "", certificate = authority.issue("server")): Promise<NatsServer> {
  const [cert, key] = [await file(certificate.cert), await file(certificate.key)];
  return await NatsServer.start({
    config: `tls { cert_file: "${cert}", key_file: "${key}", ${more} }`,
  });
}

/** The first problem that is told of dialling `urls`. */
async function told(
  urls: readonly string[],
  credentials: CredentialFiles = {},
): Promise<{ check: string; message: string }> {
  await using subject = Subject.start({ urls, credentials });
  const [first] = await until(
    "a problem is told",
    () => subject.told.problems.length > 0 && subject.told.problems,
  );
  expect(subject.nats.connected).toBe(false);
  for (const url of urls) expect(first!.message).toContain(url);
  return first!;
}

const tlsUrl = (server: NatsServer) => server.url.replace("nats:", "tls:");

describe("a server with TLS that cannot be used", () => {
  test("of an authority that nobody here trusts", async () => {
    await using server = await tlsServer();
    const none = await told([tlsUrl(server)]);
    expect(none.check).toBe("tls");
    expect(none.message).toMatch(/authority that this agent does not trust.*by --tls-ca$/);
    const wrong = await told([tlsUrl(server)], { tlsCa: await file(another.cert) });
    expect(wrong.message).toMatch(/does not trust.*into \S+\.pem \(--tls-ca\)/);
    // Servers that send the authority's certificate along fail in other words for the same.
    const both = authority.issue("server");
    const chain = { cert: both.cert + authority.cert, key: both.key };
    await using sending = await tlsServer("", chain);
    expect((await told([sending.url])).message).toMatch(/does not trust.*--tls-ca/);
  }, TEST_MS);

  test("under another name", async () => {
    await using server = await tlsServer();
    const url = tlsUrl(server).replace("127.0.0.1", "localhost");
    const { check, message } = await told([url], { tlsCa: ca });
    expect(check).toBe("tls");
    expect(message).toMatch(/certificate is for other names than localhost\. .*--nats/);
  }, TEST_MS);

  test("whose certificate has expired, or is not valid yet", async () => {
    const old = authority.issue("server", { fromMs: -2 * HOUR_MS, untilMs: -HOUR_MS });
    await using expired = await tlsServer("", old);
    const { check, message } = await told([tlsUrl(expired)], { tlsCa: ca });
    expect(check).toBe("tls");
    expect(message).toMatch(/certificate has expired\. Renew it on the nats-server/);
    const young = authority.issue("server", { fromMs: HOUR_MS, untilMs: 2 * HOUR_MS });
    await using early = await tlsServer("", young);
    expect((await told([tlsUrl(early)], { tlsCa: ca })).message).toMatch(/not valid yet.*clock/);
  }, TEST_MS);

  test("that demands a certificate of ours", async () => {
    await using server = await tlsServer(`ca_file: "${ca}", verify: true`);
    const none = await told([tlsUrl(server)], { tlsCa: ca });
    expect(none.check).toBe("tls");
    expect(none.message).toMatch(/demands a certificate of ours.*--tls-cert.*--tls-key/);
    const foreign = another.issue("agent");
    const given = { tlsCert: await file(foreign.cert), tlsKey: await file(foreign.key) };
    const { message } = await told([tlsUrl(server)], { tlsCa: ca, ...given });
    expect(message).toMatch(/seen our certificate \S+ \(--tls-cert\).*ca_file/);
  }, TEST_MS);

  test("that has none", async () => {
    await using server = await NatsServer.start();
    for (const [url, credentials] of [[tlsUrl(server), {}], [server.url, { tlsCa: ca }]] as const) {
      const { check, message } = await told([url], credentials);
      expect(check).toBe("tls");
      expect(message).toMatch(/offers no TLS.*tls:\/\/ in --nats/);
    }
  }, TEST_MS);

  test("that begins with it", async () => {
    await using server = await tlsServer("handshake_first: true");
    const { message } = await told([tlsUrl(server)], { tlsCa: ca });
    expect(message).toMatch(/says nothing \(timeout\).*handshake_first to "auto"/);
    // Which is what such a server needs to serve agents.
    await using both = await tlsServer('handshake_first: "auto"');
    await using subject = Subject.start({ urls: [tlsUrl(both)], credentials: { tlsCa: ca } });
    await subject.connected();
  }, TEST_MS);

  test("that does not go on as it must", async () => {
    const info = '{"server_id":"x","version":"2.15.1","tls_required":true,"max_payload":1048576}';
    using impostor = await listening(`INFO ${info}\r\n`, "no TLS\r\n");
    const { check, message } = await told([impostor.url], { tlsCa: ca });
    expect(check).toBe("tls");
    expect(message).toMatch(/TLS could not be agreed upon \(\w+\)/);
  }, TEST_MS);
});

describe("our own files", () => {
  test("that are no certificates, or do not belong together", async () => {
    await using server = await tlsServer();
    const url = [tlsUrl(server)];
    const [ours, theirs] = [authority.issue("a"), authority.issue("b")];
    const [cert, key] = [await file(ours.cert), await file(theirs.key)];
    const garbage = await file("garbage\n");
    const cases = [
      [{ tlsCa: garbage }, `${garbage} (--tls-ca) is no certificate in PEM`],
      [{ tlsCa: ca, tlsCert: garbage, tlsKey: key }, `${garbage} (--tls-cert) is no certificate`],
      [{ tlsCa: ca, tlsCert: cert, tlsKey: garbage }, `${garbage} (--tls-key) is no private key`],
      [{ tlsCa: ca, tlsCert: cert, tlsKey: key }, `${key} (--tls-key) is not the key of ${cert}`],
    ] as const;
    for (const [credentials, words] of cases) {
      await using subject = Subject.start({ urls: url, credentials });
      expect((await subject.problem("credentials")).message).toContain(words);
    }
  }, TEST_MS);
});

/** Accepts connections, says `greeting`, and `answer` to whatever comes first. */
async function listening(
  greeting: string,
  answer = "",
  hangsUp = false,
): Promise<Disposable & { url: string }> {
  const server: Server = createServer((socket) => {
    socket.on("error", () => {});
    if (hangsUp) return void socket.end();
    socket.write(greeting);
    socket.once("data", () => socket.end(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return { url: `nats://127.0.0.1:${port}`, [Symbol.dispose]: () => void server.close() };
}

describe("what is no nats-server", () => {
  test("something that greets in other words", async () => {
    using mail = await listening("220 mail.example ESMTP\r\n");
    const { check, message } = await told([mail.url]);
    expect(check).toBe("protocol");
    expect(message).toMatch(/no nats-server, .*Correct host and port in --nats/);
  }, TEST_MS);

  test("its port for leaf nodes", async () => {
    const port = await freePort();
    await using _ = await NatsServer.start({ config: `leafnodes { listen: "127.0.0.1:${port}" }` });
    const { message } = await told([`nats://127.0.0.1:${port}`]);
    // Told so, or with the connection reset before that is read.
    expect(message).toMatch(/port for clients|port of a nats-server for clients/);
  }, TEST_MS);

  test("something that hangs up", async () => {
    using mute = await listening("", "", true);
    const { check, message } = await told([mute.url]);
    expect(check).toBe("connection");
    expect(message).toMatch(/closes them at once\. See whether that is the port of a nats-server/);
  }, TEST_MS);

  test("the port of its monitoring", async () => {
    await using server = await NatsServer.start();
    const { message } = await told([`nats://127.0.0.1:${server.monitorPort}`]);
    expect(message).toMatch(/says nothing.*port of its monitoring/);
  }, TEST_MS);

  test("nothing at all, and a name that nobody knows", async () => {
    const nothing = await told([`nats://127.0.0.1:${await freePort()}`]);
    expect(nothing.check).toBe("connection");
    expect(nothing.message).toMatch(/connection refused\. See whether a nats-server runs there/);
    const unknown = await told(["nats://no-such-server.invalid:4222"]);
    expect(unknown.check).toBe("name");
    expect(unknown.message).toMatch(/does not resolve \(\w+\).*DNS/);
  }, TEST_MS);
});

describe("credentials", () => {
  test("that are wanted, and wrong", async () => {
    await using server = await NatsServer.start({
      config: "authorization { users: [{ user: agent, password: right }] }",
    });
    const none = await told([server.url]);
    expect(none.check).toBe("authentication");
    expect(none.message).toMatch(/demands credentials.*--creds, --nkey, or --user/);
    const passwordFile = await file("wrong\n");
    const { message } = await told([server.url], { user: "agent", passwordFile });
    expect(message).toContain(`refuses our credentials`);
    expect(message).toContain(passwordFile);
  }, TEST_MS);
});

test(
  "of several servers, the one that somebody has to do something about is named, each time",
  async () => {
    await using server = await tlsServer();
    const down = `tls://127.0.0.1:${await freePort()}`;
    await using subject = Subject.start({ urls: [down, tlsUrl(server)] });
    const dialled = async () => (await server.monitor("varz")).total_connections;
    // Servers are dialled in random order.
    await until("it dialled often", async () => await dialled() >= 6);
    expect(subject.told.problems.map(({ check }) => check)).toEqual(["tls"]);
    expect(subject.told.problems[0]!.message).toContain(
      `127.0.0.1:${server.port}: its certificate`,
    );
  },
  TEST_MS,
);

test("a server that has as many connections as it takes", async () => {
  await using server = await NatsServer.start({ config: "max_connections: 1" });
  await using first = await Admin.connect(server.url);
  const { check, message } = await told([server.url]);
  expect(check).toBe("connection");
  expect(message).toMatch(/greets and then closes the connection.*max_connections/);
  expect(first.nc.isClosed()).toBe(false);
}, TEST_MS);
