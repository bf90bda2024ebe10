import { describe, expect, test } from "bun:test";
import { createServer, type Socket } from "node:net";
import { greet } from "../../src/nats/greeting.ts";
import { addressOf } from "../../src/nats/membership.ts";
import { Admin } from "../support/admin.ts";
import { freePort, NatsCluster, NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";
import { until } from "../support/wait.ts";

const TEST_MS = 90_000;

async function deadUrl(): Promise<string> {
  return `nats://127.0.0.1:${await freePort()}`;
}

async function streamsOf(server: NatsServer): Promise<string[]> {
  await using admin = await Admin.connect(server.url);
  return await admin.jsm.streams.names().next();
}

const warned = ({ nats }: Subject) =>
  nats.warnings.find(({ check }) => check === "servers")?.message;

describe("a server without a cluster", () => {
  test("is used where it is the only one, by whichever name", async () => {
    await using server = await NatsServer.start();
    const urls = [server.url, `nats://localhost:${server.port}`, `127.0.0.1:${server.port}`];
    await using subject = await Subject.connect({ urls });
    expect(subject.told.problems).toEqual([]);
    expect(warned(subject)).toBeUndefined();
  }, TEST_MS);

  test("is not used beside one that cannot be asked, until that can", async () => {
    await using server = await NatsServer.start();
    const other = await deadUrl();
    await using subject = Subject.start({ urls: [server.url, other] });
    await until("it is told", () => subject.nats.problem?.check === "servers");
    expect(subject.nats.problem!.message).toContain(
      `${server.url} is not in a cluster, and ${
        new URL(other).host
      }, which --nats names, too, does ` +
        "not answer",
    );
    expect(await streamsOf(server)).toEqual([]);
    expect(subject.nats.connected).toBe(false);
    await using _ = await NatsServer.start({ port: Number(new URL(other).port) });
    await until(
      "the other one is told",
      () => /another server/.test(subject.nats.problem!.message),
    );
    expect(subject.told.problems.every(({ fatal }) => !fatal)).toBe(true);
  }, TEST_MS);

  test(
    "is not used after servers of a cluster were, though it is the only one that is named",
    async () => {
      await using cluster = await NatsCluster.start(3);
      const [n1, n2, n3] = cluster.servers as [NatsServer, NatsServer, NatsServer];
      await using subject = await Subject.connect({ urls: [n1.url] });
      await n1.wipe();
      await n1.restart("");
      // Found by what n1 told of the others when it was one of them.
      await subject.connected();
      await Promise.all([n2.kill(), n3.kill()]);
      await until("it is told", () => subject.nats.problem?.check === "servers", 60_000);
      expect(subject.nats.problem!.message).toContain("the servers that this agent has used are");
      expect(await streamsOf(n1)).toEqual([]);
    },
    TEST_MS,
  );

  test("is warned of where it is used all the same", async () => {
    await using server = await NatsServer.start();
    const urls = [server.url, await deadUrl()];
    await using subject = await Subject.connect({ urls, allowUnsafeServer: true });
    await until("it is told", () => /does not answer.*\(accepted\)/.test(warned(subject) ?? ""));
  }, TEST_MS);
});

describe("a server whose cluster is not there", () => {
  test("makes no bucket where it has routes: it has no leader", async () => {
    const [port, elsewhere] = await Promise.all([freePort(), freePort()]);
    for (const routes of [[port], [port, elsewhere], [elsewhere]]) {
      await using server = await NatsServer.start({
        awaitHealth: false,
        config: `cluster { name: test, listen: "127.0.0.1:${port}", routes: ${
          JSON.stringify(routes.map((each) => `nats://127.0.0.1:${each}`))
        } }`,
      });
      await using subject = Subject.start({ urls: [server.url, await deadUrl()] });
      await subject.problem("jetstream");
      expect(subject.nats.connected).toBe(false);
      expect((await server.monitor("jsz")).streams).toBe(0);
    }
  }, TEST_MS);

  test("is not used where it has only a name", async () => {
    await using server = await NatsServer.start({ config: "cluster { name: test }" });
    await using subject = Subject.start({ urls: [server.url, await deadUrl()] });
    const { message } = await subject.problem("jetstream");
    expect(message).toContain("its JetStream is not in one");
    expect(await streamsOf(server)).toEqual([]);
    expect(subject.nats.connected).toBe(false);
  }, TEST_MS);
});

describe("addressOf()", () => {
  test.each([
    ["nats://host", "host", 4222],
    ["tls://host:1/", "host", 1],
    ["host:4223", "host", 4223],
    ["[::1]:4223", "::1", 4223],
    ["nats://[::1]", "::1", 4222],
    ["::1", "::1", 4222],
  ])("of %s", (url, host, port) => {
    expect(addressOf(url)).toEqual({ host, port });
  });
});

describe("greet()", () => {
  /** What it makes of a server that does this with each connection. */
  async function greeted(serve: (socket: Socket) => void) {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      serve(socket);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    try {
      return await greet({ host: "127.0.0.1", port });
    } finally {
      server.close();
    }
  }

  test("is null for what is no nats-server, or says nothing", async () => {
    expect(await greeted((socket) => socket.destroy())).toBeNull();
    expect(await greeted(() => {})).toBeNull();
    expect(await greeted((socket) => socket.write("HTTP/1.1 400 Bad Request\r\n\r\n"))).toBeNull();
    expect(await greeted((socket) => socket.write("INFO {not JSON}\r\n"))).toBeNull();
    expect(await greeted((socket) => socket.write("INFO {}\r\n"))).toBeNull();
    expect(await greeted((socket) => socket.write("x".repeat(1_000_000)))).toBeNull();
    expect(await greet({ host: "127.0.0.1", port: await freePort() })).toBeNull();
  });

  test("reads a greeting that comes in pieces", async () => {
    const info = await greeted((socket) => {
      socket.write('INFO {"server_id":');
      setTimeout(() => socket.write('"X"} \r\nPING\r\n'), 20);
    });
    expect(info).toMatchObject({ server_id: "X" });
  });
});
