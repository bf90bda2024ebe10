import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ConnectionHandle, Handlers, Reply } from "../../src/socket/handlers.ts";
import { PeerPolicy } from "../../src/socket/peers.ts";
import { type GuardResult, MAX_BACKLOG_BYTES } from "../../src/socket/protocol.ts";
import { python, RawClient, TemporaryDirectory, TestServer } from "./support/server.ts";

const HELD: Handlers = { held: (_params, _connection, reply) => reply.ok({ held: true }) };

const LEASE = {
  subscription: "s",
  store: "x".repeat(128),
  state: "self",
  held: true,
  node: "n".repeat(64),
  address: null,
  epoch: 1,
} as const;

/** Python that connects 500 times, keeps all, and counts what became of them. */
const CROWD = `
import socket, sys, select, time
crowd = []
for i in range(500):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    crowd.append(s)
    s.sendall(b'{"jsonrpc":"2.0","id":%d,"method":"held","params":{"store":"held"}}\\n' % i)
kept = 0
for i, s in enumerate(crowd):
    answer = s.recv(65536)
    kept += b'"result":{"held":true}' in answer
    assert b'"result"' in answer or b'"kind":"limit"' in answer, answer
print("%d kept, %d turned away" % (kept, len(crowd) - kept))
`;

/**
 * Python that connects 300 times before it sends anything, and reads after it has sent everything:
 * whoever is closed with a request unread sees a reset.
 */
const SIMULTANEOUS = `
import socket, sys
crowd = []
for i in range(300):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    crowd.append(s)
for s in crowd:
    s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"held","params":{"store":"a"}}\\n')
told = 0
for s in crowd:
    answer = b""
    while data := s.recv(65536):
        answer += data
    told += b'"kind":"limit"' in answer
print("%d were told limit, then the end" % told)
`;

function spawnLimited(descriptors: number, ...args: string[]) {
  const program = join(import.meta.dir, "support", "serve.ts");
  const shell = `ulimit -n ${descriptors}; exec "$0" "$@"`;
  return Bun.spawn(["sh", "-c", shell, process.execPath, program, ...args], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
}

function cpuTicks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

describe("SocketServer limits", () => {
  test("tells connection 1,025 limit and closes it; another may come when one has gone", async () => {
    const turnedAway: string[] = [];
    await using server = await TestServer.start(HELD, {
      onTurnedAway: (refusal) => turnedAway.push(refusal.kind),
    });
    const clients: RawClient[] = [];
    for (let i = 0; i < 1_024; i++) clients.push(await RawClient.connect(server.path));
    clients[1_023].request(1, "held", { store: "a" });
    expect((await clients[1_023].message()).result).toEqual({ held: true });

    const printed = await python(
      `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"held","params":{"store":"a"}}\\n')
while data := s.recv(65536):
    print(data.decode(), end="")
`,
      server.path,
    );
    expect(JSON.parse(printed)).toMatchObject({
      id: null,
      error: { code: -32010, data: { kind: "limit" } },
    });
    expect(turnedAway).toEqual(["limit"]);

    clients[0].socket.destroy();
    await server.untilClosed(1);
    using late = await RawClient.connect(server.path);
    late.request(1, "held", { store: "a" });
    expect((await late.message()).result).toEqual({ held: true });
    for (const client of clients) client.socket.destroy();
  });

  test("tells everybody of a crowd that comes at once, and resets nobody", async () => {
    await using server = await TestServer.start(HELD, { maxConnections: 1 });
    using first = await RawClient.connect(server.path);
    first.request(1, "held", { store: "a" });
    await first.message();
    expect(await python(SIMULTANEOUS, server.path)).toBe("300 were told limit, then the end\n");
  });

  test("takes fewer connections when the process may open few files", async () => {
    await using server = await TestServer.start(HELD, { descriptors: 256 });
    expect(server.server.maxConnections).toBe(64);
  });

  test("never runs out of descriptors, nor spins, in a crowd", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const child = spawnLimited(256, path, "descriptors=256");
    await child.stdout.getReader().read();
    using first = await RawClient.connect(path);
    first.request(1, "held", { store: "held" });
    await first.message();
    const printed = await python(CROWD, path);
    expect(printed.trim()).toBe("63 kept, 437 turned away");
    first.request(2, "held", { store: "held" });
    expect((await first.message()).result).toEqual({ held: true });
    const before = cpuTicks(child.pid);
    await Bun.sleep(500);
    // Of 50 ticks; a loop that spins takes nearly all.
    expect(cpuTicks(child.pid) - before).toBeLessThan(20);
    child.stdin.end();
    expect(await child.exited).toBe(0);
  });

  test("tells a forbidden peer so and closes", async () => {
    const uid = process.getuid!();
    const policy = new PeerPolicy({
      allowUids: [uid + 1],
      allowGids: [],
      adminUids: [],
      ownUid: uid,
      groupsOf: () => [],
    });
    await using server = await TestServer.start(HELD, {
      mayConnect: (peer) => policy.connect(peer),
    });
    using client = await RawClient.connect(server.path);
    client.request(1, "held", { store: "a" });
    const message = await client.message();
    expect(message).toMatchObject({
      id: null,
      error: { code: -32009, data: { kind: "forbidden" } },
    });
    expect(message.error.message).toContain(`User ${uid}`);
    expect(await client.line()).toBeNull();
    expect(server.server.connections).toBe(0);
  });

  test("refuses a method that the peer may not call", async () => {
    await using server = await TestServer.start(
      {
        ...HELD,
        stepdown: (_params, _connection, reply) => reply.ok({ released: 0, remaining: 0 }),
      },
      {
        mayCall: (peer, method) =>
          method === "stepdown" ? { kind: "forbidden", message: `not ${peer.uid}` } : null,
      },
    );
    using client = await RawClient.connect(server.path);
    client.request(1, "stepdown", { all: true });
    expect((await client.message()).error).toEqual({
      code: -32009,
      message: `not ${process.getuid!()}`,
      data: { kind: "forbidden" },
    });
  });

  test("cuts a client off that does not read at 8 MiB, and no other", async () => {
    let slow: ConnectionHandle | null = null;
    await using server = await TestServer.start({
      ...HELD,
      watch(_params, connection, reply) {
        slow = connection;
        reply.ok({ subscription: "s" });
      },
    });
    using reader = await RawClient.connect(server.path);
    using sleeper = await RawClient.connect(server.path);
    sleeper.request(1, "watch");
    await sleeper.message();
    sleeper.socket.pause();
    let sent = 0;
    while (!slow!.closed) {
      slow!.notify("lease", LEASE);
      sent += JSON.stringify(LEASE).length;
      // A turn now and then, as in life: the answers leave, and the kernel's buffer fills.
      if (sent % 100 === 0) await new Promise(setImmediate);
    }
    expect(sent).toBeGreaterThan(MAX_BACKLOG_BYTES * 0.8);
    expect(sent).toBeLessThan(MAX_BACKLOG_BYTES * 1.2);
    await server.untilClosed(1);
    reader.request(1, "held", { store: "a" });
    expect((await reader.message()).result).toEqual({ held: true });
  });

  test("counts bytes, not characters, in the backlog", async () => {
    let slow: ConnectionHandle | null = null;
    await using server = await TestServer.start({
      watch(_params, connection, reply) {
        slow = connection;
        reply.ok({ subscription: "s" });
      },
    });
    using sleeper = await RawClient.connect(server.path);
    sleeper.request(1, "watch");
    await sleeper.message();
    sleeper.socket.pause();
    const node = "é".repeat(50_000);
    let sent = 0;
    for (; !slow!.closed; sent += 100_000) slow!.notify("lease", { ...LEASE, node });
    expect(sent).toBeLessThan(MAX_BACKLOG_BYTES * 1.2);
    await server.untilClosed(1);
  });

  test("stops reading a client that does not read its answers, and goes on when it does", async () => {
    let asked = 0;
    await using server = await TestServer.start({
      held(_params, _connection, reply) {
        asked++;
        reply.ok({ held: { ["x".repeat(1_000)]: true } });
      },
    });
    using client = await RawClient.connect(server.path);
    client.socket.pause();
    const count = 20_000;
    for (let id = 0; id < count; id++) client.request(id, "held", { store: "a" });
    using other = await RawClient.connect(server.path);
    let before = -1;
    // Until a while brings nothing more: the server has stopped taking requests.
    while (asked !== before) {
      before = asked;
      await Bun.sleep(100);
    }
    expect(asked).toBeLessThan(2_000);
    other.request("other", "held", { store: "a" });
    expect((await other.message()).id).toBe("other");
    client.socket.resume();
    for (let id = 0; id < count; id++) expect((await client.message()).id).toBe(id);
    expect(asked).toBe(count + 1);
  });

  test("closes when a client dies that did not read its answers", async () => {
    await using server = await TestServer.start({
      held: (_params, _connection, reply) => reply.ok({ held: { ["x".repeat(1_000)]: true } }),
    });
    const killed = await python(
      `
import socket, sys, os, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.setblocking(False)
request = b'{"jsonrpc":"2.0","id":1,"method":"held","params":{"store":"a"}}\\n' * 100
quiet = 0
while quiet < 20:
    try:
        s.send(request)
        quiet = 0
    except BlockingIOError:
        quiet += 1
        time.sleep(0.01)
os.kill(os.getpid(), 9)
`,
      server.path,
    ).catch(() => "killed");
    expect(killed).toBe("killed");
    await server.untilClosed(1);
    expect(server.server.connections).toBe(0);
  });

  test("takes no more requests of a connection than may be in flight, until some are answered", async () => {
    const waiting: Reply<GuardResult>[] = [];
    let wake = () => {};
    await using server = await TestServer.start({
      guard(_params, _connection, reply) {
        waiting.push(reply);
        wake();
      },
    }, { maxInFlight: 10 });
    using client = await RawClient.connect(server.path);
    for (let id = 0; id < 50; id++) client.request(id, "guard", { store: "a" });
    for (let done = 0; done < 50; done++) {
      while (waiting.length === 0) await new Promise<void>((resolve) => wake = resolve);
      // Time in which too many could come.
      await Bun.sleep(1);
      expect(waiting.length).toBeLessThanOrEqual(10);
      waiting.shift()!.fail({ kind: "busy", message: "b" });
      expect((await client.message()).id).toBe(done);
    }
  });

  test("lets much be told at the client's pace by congested and onDrain()", async () => {
    const count = 60_000;
    await using server = await TestServer.start({
      watch(_params, connection, reply) {
        reply.ok({ subscription: "s" });
        let told = 0;
        function tell() {
          while (told < count && !connection.congested) {
            connection.notify("lease", { ...LEASE, epoch: told++ });
          }
          if (told < count) connection.onDrain(tell);
        }
        tell();
      },
    });
    using client = await RawClient.connect(server.path);
    client.request(1, "watch");
    expect((await client.message()).id).toBe(1);
    // 60,000 × 350 bytes: two and a half times what would cut the client off.
    for (let i = 0; i < count; i++) expect((await client.message()).params.epoch).toBe(i);
    expect(server.closed).toEqual([]);
  });

  test("an answer does not overtake what was to be told before it", async () => {
    const count = 10_000;
    const behind = Promise.withResolvers<void>();
    await using server = await TestServer.start({
      watch(_params, connection, reply) {
        reply.ok({ subscription: "s" });
        let told = 0;
        function tell() {
          while (told < count && !connection.congested) {
            connection.notify("lease", { ...LEASE, epoch: told++ });
          }
          if (told < count) connection.onDrain(tell);
          behind.resolve();
        }
        tell();
      },
      held: (_params, _connection, reply) => reply.ok({ held: true }),
    });
    using client = await RawClient.connect(server.path);
    client.socket.pause();
    client.request(1, "watch");
    await behind.promise;
    client.request(2, "held", { store: "a" });
    client.socket.resume();
    expect((await client.message()).id).toBe(1);
    for (let i = 0; i < count; i++) expect((await client.message()).params?.epoch).toBe(i);
    expect((await client.message()).id).toBe(2);
  });

  test("onDrain() calls back later, not at once, when nothing is behind", async () => {
    const order: string[] = [];
    const drained = Promise.withResolvers<void>();
    await using server = await TestServer.start({
      held(_params, connection, reply) {
        connection.onDrain(() => {
          order.push("drained");
          drained.resolve();
        });
        order.push("asked");
        reply.ok({ held: true });
      },
    });
    using client = await RawClient.connect(server.path);
    client.request(1, "held", { store: "a" });
    await client.message();
    await drained.promise;
    expect(order).toEqual(["asked", "drained"]);
  });
});
