import { describe, expect, test } from "bun:test";
import type { ConnectionHandle, Handlers, Reply } from "../../src/socket/handlers.ts";
import type { GuardResult, HeldResult } from "../../src/socket/protocol.ts";
import { python, RawClient, TestServer } from "./support/server.ts";

const HELD: Handlers = { held: (_params, _connection, reply) => reply.ok({ held: true }) };

const GRANT: GuardResult = {
  token: "t",
  store: "a",
  epoch: 1,
  revision: 1,
  node: "n",
  remaining_ms: 1,
  deadline_boot_ms: 1,
  lock_path: "/l",
  unguarded: null,
};

/** Handlers whose guards are answered by the test. */
function slowGuards() {
  const waiting: { reply: Reply<GuardResult>; connection: ConnectionHandle; store: string }[] = [];
  let wake = () => {};
  const handlers: Handlers = {
    ...HELD,
    guard(params, connection, reply) {
      waiting.push({ reply, connection, store: params.store });
      wake();
    },
  };
  async function untilWaiting(count: number): Promise<void> {
    while (waiting.length < count) await new Promise<void>((resolve) => wake = resolve);
  }
  return { waiting, handlers, untilWaiting };
}

describe("SocketServer", () => {
  test("answers a request under its id", async () => {
    await using server = await TestServer.start(HELD);
    using client = await RawClient.connect(server.path);
    client.request(7, "held", { store: "a" });
    expect(await client.line()).toBe('{"jsonrpc":"2.0","id":7,"result":{"held":true}}');
  });

  test.each(["1", "-0.5", "12345678901234567890", "1e400", '"x"', '"é\\n"', "null"])(
    "gives back the id %s exactly",
    async (id) => {
      await using server = await TestServer.start(HELD);
      using client = await RawClient.connect(server.path);
      client.send(`{"jsonrpc":"2.0","id":${id},"method":"held","params":{"store":"a"}}\n`);
      expect(await client.line()).toBe(`{"jsonrpc":"2.0","id":${id},"result":{"held":true}}`);
    },
  );

  test("runs the requests of one connection at once", async () => {
    const { handlers, waiting, untilWaiting } = slowGuards();
    await using server = await TestServer.start(handlers);
    using client = await RawClient.connect(server.path);
    client.request("slow", "guard", { store: "a" });
    client.request("slower", "guard", { store: "b" });
    client.request("quick", "held", { store: "a" });
    expect((await client.message()).id).toBe("quick");
    await untilWaiting(2);
    waiting[1].reply.ok(GRANT);
    expect((await client.message()).id).toBe("slower");
    waiting[0].reply.fail({ kind: "busy", message: "b", retryAfterMs: 5, holder: null });
    expect(await client.message()).toEqual({
      jsonrpc: "2.0",
      id: "slow",
      error: {
        code: -32003,
        message: "b",
        data: { kind: "busy", retry_after_ms: 5, holder: null },
      },
    });
  });

  test("names near methods when there is none of that name", async () => {
    await using server = await TestServer.start(HELD);
    using client = await RawClient.connect(server.path);
    for (const method of ["hled", "toString", "__proto__", "constructor", "", "Held"]) {
      client.request(1, method);
      const { error } = await client.message();
      expect(error.code).toBe(-32601);
      expect(error.data).toBeUndefined();
      const near = method === "hled" || method === "Held";
      expect(error.message).toContain(near ? "did you mean held?" : "known: held");
    }
  });

  test("refuses bad parameters as invalid", async () => {
    await using server = await TestServer.start(HELD);
    using client = await RawClient.connect(server.path);
    client.request(1, "held", { store: 5 });
    expect((await client.message()).error).toEqual({
      code: -32602,
      message: 'Cannot answer "held": Parameter store must be a string',
      data: { kind: "invalid" },
    });
  });

  test("lives on and logs when a handler throws", async () => {
    await using server = await TestServer.start({
      ...HELD,
      holder: () => {
        throw new Error("secret");
      },
      release: (_params, _connection, reply) => reply.ok({ n: 5n } as never),
    });
    using client = await RawClient.connect(server.path);
    client.request(1, "holder", { store: "a" });
    client.request(2, "release", { token: "a" });
    for (const id of [1, 2]) {
      const message = await client.message();
      expect(message).toMatchObject({ id, error: { code: -32603 } });
      expect(message.error.message).not.toContain("secret");
    }
    expect(server.errors.map(String)).toEqual([
      "Error: Cannot answer holder: Error: secret",
      expect.stringContaining("Error: Cannot answer release: TypeError"),
    ]);
    client.request(3, "held", { store: "a" });
    expect((await client.message()).id).toBe(3);
  });

  test("sends one answer and logs when a handler answers twice", async () => {
    await using server = await TestServer.start({
      held(_params, _connection, reply: Reply<HeldResult>) {
        reply.ok({ held: true });
        reply.ok({ held: false });
        reply.fail({ kind: "busy", message: "no" });
        throw new Error("and fails");
      },
    });
    using client = await RawClient.connect(server.path);
    client.request(1, "held", { store: "a" });
    client.request(2, "held", { store: "a" });
    const ids = [(await client.message()).id, (await client.message()).id];
    expect(ids).toEqual([1, 2]);
    expect(server.errors).toHaveLength(6);
  });

  test("answers no notification, and runs none whose answer is its point", async () => {
    const ran: string[] = [];
    await using server = await TestServer.start({
      ...HELD,
      release: (params, _connection, reply) => {
        ran.push(params.token);
        reply.ok({});
      },
      guard: () => ran.push("guard"),
      watch: () => ran.push("watch"),
    });
    using client = await RawClient.connect(server.path);
    client.send('{"jsonrpc":"2.0","method":"release","params":{"token":"t"}}\n');
    client.send('{"jsonrpc":"2.0","method":"release","params":{}}\n');
    client.send('{"jsonrpc":"2.0","method":"guard","params":{"store":"a"}}\n');
    client.send('{"jsonrpc":"2.0","method":"watch"}\n{"jsonrpc":"2.0","method":"nothing"}\n');
    client.request(1, "held", { store: "a" });
    expect((await client.message()).id).toBe(1);
    expect(ran).toEqual(["t"]);
  });

  test("tells notifications in order with answers", async () => {
    await using server = await TestServer.start({
      guard(params, connection, reply) {
        reply.ok({ ...GRANT, store: params.store });
        connection.notify("expiring", { token: "t", store: params.store, deadline_boot_ms: 5 });
      },
    });
    using client = await RawClient.connect(server.path);
    client.request(1, "guard", { store: "a" });
    expect((await client.message()).id).toBe(1);
    expect(await client.message()).toEqual({
      jsonrpc: "2.0",
      method: "expiring",
      params: { token: "t", store: "a", deadline_boot_ms: 5 },
    });
  });

  test("answers all of a pipelined burst, and a request that comes in single bytes", async () => {
    await using server = await TestServer.start(HELD);
    using client = await RawClient.connect(server.path);
    const count = 5_000;
    for (let id = 0; id < count; id++) client.request(id, "held", { store: "a" });
    for (let id = 0; id < count; id++) expect((await client.message()).id).toBe(id);
    for (const byte of '{"jsonrpc":"2.0","id":-1,"method":"held","params":{"store":"é"}}\n') {
      client.send(byte);
      await new Promise(setImmediate);
    }
    expect(await client.message()).toMatchObject({ id: -1, error: { code: -32602 } });
  });

  test("answers a foreign client that shut its sending side down, then closes", async () => {
    const { handlers, waiting, untilWaiting } = slowGuards();
    await using server = await TestServer.start(handlers);
    const output = python(
      `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"guard","params":{"store":"a"}}\\n')
s.sendall(b'{"jsonrpc":"2.0","id":2,"method":"held","params":{"store":"a"}}')
s.shutdown(socket.SHUT_WR)
while data := s.recv(65536):
    print(data.decode(), end="")
`,
      server.path,
    );
    await untilWaiting(1);
    // A while later, so that the end of what it sends has long been seen.
    setTimeout(() => waiting[0].reply.ok(GRANT), 300);
    const ids = (await output).trim().split("\n").map((line) => JSON.parse(line).id);
    expect(ids).toEqual([2, 1]);
    await server.untilClosed(1);
  });

  test("closes when a client dies whose guard waits, also after it shut down (etcd#17470)", async () => {
    for (const shutdown of ["", "s.shutdown(socket.SHUT_WR)"]) {
      const { handlers, waiting, untilWaiting } = slowGuards();
      await using server = await TestServer.start(handlers);
      const killed = python(
        `
import socket, sys, os
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"guard","params":{"store":"a","wait_ms":60000}}\\n')
${shutdown}
sys.stdin.read()
os.kill(os.getpid(), 9)
`,
        server.path,
      ).catch((error) => error);
      await untilWaiting(1);
      await killed;
      await server.untilClosed(1);
      expect(waiting[0].connection.closed).toBe(true);
      waiting[0].reply.ok(GRANT);
      expect(server.errors).toEqual([]);
      expect(server.server.connections).toBe(0);
    }
  });

  test("sends all answers to a half-closed client although it is notified meanwhile", async () => {
    let watcher: ConnectionHandle | null = null;
    await using server = await TestServer.start({
      held: (_params, _connection, reply) => reply.ok({ held: { ["x".repeat(4_000_000)]: true } }),
      unwatch(_params, connection, reply) {
        watcher = connection;
        reply.ok({});
      },
    });
    const output = python(
      `
import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"unwatch","params":{"subscription":"s"}}\\n')
s.sendall(b'{"jsonrpc":"2.0","id":2,"method":"held","params":{"store":"a"}}\\n')
s.shutdown(socket.SHUT_WR)
time.sleep(0.2)
data = b""
while part := s.recv(65536): data += part
print(len(data), data.count(b"\\n"))
`,
      server.path,
    );
    while (server.closed.length === 0) {
      // deno-lint-ignore no-explicit-any -- assigned in a handler, which the checker does not see
      (watcher as any)?.notify("lost", { token: "t", store: "a", kind: "lost", message: "m" });
      await Bun.sleep(20);
    }
    const [bytes, lines] = (await output).split(" ").map(Number);
    expect(bytes).toBeGreaterThan(4_000_000);
    expect(lines).toBeGreaterThanOrEqual(2);
  });

  test("lives on when cleaning up after a connection fails", async () => {
    await using server = await TestServer.start(HELD, {
      onClose: () => {
        throw new Error("fault");
      },
    });
    (await RawClient.connect(server.path)).socket.destroy();
    await server.untilClosed(1);
    await new Promise(setImmediate);
    expect(String(server.errors[0])).toContain("Cannot clean up after connection 1: Error: fault");
  });

  test("stop() drops what is answered after it, and closes in time", async () => {
    const { handlers, waiting, untilWaiting } = slowGuards();
    const server = await TestServer.start(handlers);
    using client = await RawClient.connect(server.path);
    client.request(1, "held", { store: "a" });
    client.request(2, "guard", { store: "a" });
    await untilWaiting(1);
    const stopped = server[Symbol.asyncDispose]();
    expect(waiting[0].connection.closed).toBe(true);
    waiting[0].reply.ok(GRANT);
    expect((await client.message()).id).toBe(1);
    expect(await client.line()).toBeNull();
    await stopped;
    expect(server.closed).toEqual([1]);
    expect(server.errors).toEqual([]);
  });

  test("stop() sends what was answered before it closes", async () => {
    await using server = await TestServer.start(HELD);
    using client = await RawClient.connect(server.path);
    client.request(1, "held", { store: "a" });
    expect((await client.message()).id).toBe(1);
    client.socket.on("end", () => client.socket.end());
    await server.server.stop();
    expect(await client.line()).toBeNull();
    expect(server.closed).toEqual([1]);
    expect(await RawClient.connect(server.path).catch((error) => error.code)).toBe("ENOENT");
  });
});
