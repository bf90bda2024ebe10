import { describe, expect, test } from "bun:test";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { requestLocked } from "../../src/cli/guard/locked_grant.ts";
import { openSocket } from "../../src/client/connect.ts";
import { Connection } from "../../src/client/connection.ts";
import { AgentError, AgentUnreachable, connect, openConnection } from "../../src/client/mod.ts";
import type { Handlers, Reply } from "../../src/socket/handlers.ts";
import type { GuardResult, Notification, WatchResult } from "../../src/socket/protocol.ts";
import { child } from "../support/child.ts";
import { TemporaryDirectory, TestServer } from "../socket/support/server.ts";

const HELD: Handlers = {
  held: (params, _connection, reply) => reply.ok({ held: params.store === "a" }),
};

const GRANT: GuardResult = {
  token: "token-1",
  store: "a",
  epoch: 1,
  revision: 1,
  node: "n",
  remaining_ms: 1,
  deadline_boot_ms: 1,
  lock_path: "/l",
  unguarded: null,
};

/** A server that does what the test wants with each connection: no agent. */
async function impostor(path: string, onConnection: (socket: Socket) => void): Promise<Server> {
  const server = createServer(onConnection);
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return server;
}

/** Python that takes a connection whenever it is told to, says why it cannot stay, and closes. */
const TURNS_AWAY = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
print("listening")
for _ in sys.stdin:
    c, _ = s.accept()
    c.sendall(b'{"jsonrpc":"2.0","id":null,"error":'
              b'{"code":-32010,"message":"full","data":{"kind":"limit"}}}\\n')
    c.close()
    print("closed")
`;

async function failure(promise: Promise<unknown>): Promise<AgentError> {
  const error = await promise.then(() => null, (error) => error);
  expect(error).toBeInstanceOf(AgentError);
  return error;
}

describe("a connection that ends before the answer", () => {
  test("leaves unknown what was sent, and says of the rest that it was not", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    // Takes the first request, and closes without a word.
    const server = await impostor(path, (socket) => socket.once("data", () => socket.destroy()));
    try {
      const agent = await openConnection({ socket: path });
      const sent = failure(agent.call("stepdown", { all: true }));
      expect(await sent).toMatchObject({ name: "AgentUnreachable", unknown: true });
      expect(await failure(agent.call("stepdown", { all: true }))).toMatchObject({
        unknown: false,
      });
      const other = await openConnection({ socket: path });
      const unsent = failure(other.call("held", { store: "a" }));
      await other.close(); // before the first turn of the event loop, in which it would have left
      expect(await unsent).toMatchObject({ name: "AgentUnreachable", unknown: false });
      const nobody = failure(openConnection({ socket: `${path}.not` }));
      expect(await nobody).toMatchObject({ unknown: false, retryable: true });
    } finally {
      server.close();
    }
  });

  test("has a question asked once more, and a stepdown not: nobody knows what became of it", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const asked: string[] = [];
    let connections = 0;
    let die = false;
    const server = await impostor(path, (socket) => {
      const nth = ++connections;
      socket.on("data", (data) => {
        const { id, method } = JSON.parse(String(data));
        asked.push(`${method} ${nth}`);
        // An agent that is killed in the middle of it, and started again.
        if (die) return void (die = false, socket.destroy());
        socket.write(`${JSON.stringify({ jsonrpc: "2.0", id, result: { held: true } })}\n`);
      });
    });
    try {
      await using client = await connect({ socket: path });
      expect(await client.held("a")).toBe(true);
      die = true;
      expect(await client.held("a")).toBe(true);
      die = true;
      expect(await failure(client.stepdown({ all: true }))).toMatchObject({ unknown: true });
      expect(asked).toEqual(["held 1", "held 1", "held 2", "stepdown 2"]);
    } finally {
      server.close();
    }
  });
});

describe("Connection", () => {
  test("call() gives the result of each of many calls at once", async () => {
    await using server = await TestServer.start(HELD);
    await using agent = await openConnection({ socket: server.path });
    const calls = Array.from(
      { length: 500 },
      (_, i) => agent.call("held", { store: i % 2 ? "a" : "b" }),
    );
    expect(await Promise.all(calls)).toEqual(calls.map((_, i) => ({ held: i % 2 === 1 })));
  });

  test("call() throws why an agent turned it away that closed before it was asked", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const server = child(["python3", "-uc", TURNS_AWAY, path]);
    await server.line();
    try {
      // Connected before the server takes it, closed when the call comes.
      const socket = await openSocket({ socket: path });
      server.say("take it");
      await server.line();
      const agent = new Connection(socket, { path });
      expect(await failure(agent.call("held", { store: "a" }))).toMatchObject({
        kind: "limit",
        message: "full",
      });
      expect(await failure(agent.call("held", { store: "a" }))).toMatchObject({ kind: "limit" });
      // The same for who asks for a lock.
      const other = await openSocket({ socket: path });
      server.say("take it");
      await server.line();
      expect(
        await failure(
          requestLocked(other, { method: "guard", params: { store: "a" }, path, withinMs: 10_000 }),
        ),
      )
        .toMatchObject({ kind: "limit", message: "full" });
    } finally {
      await server.kill();
    }
  });

  test("call() throws what the agent refused with", async () => {
    const holder = { node: "other", address: "10.0.0.2", epoch: 5, since: null };
    await using server = await TestServer.start({
      guard: (_params, _connection, reply) =>
        reply.fail({ kind: "not_holder", message: "other holds it", retryAfterMs: 9, holder }),
      held: () => {
        throw new Error("fault");
      },
    });
    await using agent = await openConnection({ socket: server.path });
    const refused = await failure(agent.call("guard", { store: "a" }));
    expect(refused).toMatchObject({
      kind: "not_holder",
      code: -32001,
      exit: 75,
      retryAfterMs: 9,
      holder,
      message: "other holds it",
    });
    expect(refused).not.toBeInstanceOf(AgentUnreachable);
    const invalid = await failure(agent.call("held", { store: "../a" }));
    expect(invalid).toMatchObject({ kind: "invalid", code: -32602, exit: 64 });
    const unknown = await failure(agent.call("history", { store: "a" }));
    expect(unknown).toMatchObject({ kind: "internal", code: -32601, exit: 70, holder: null });
    const broken = await failure(agent.call("held", { store: "a" }));
    expect(broken).toMatchObject({ kind: "internal", code: -32603, exit: 70 });
  });

  test("call() throws invalid at once when the request is too long, and the connection goes on", async () => {
    await using server = await TestServer.start(HELD);
    await using agent = await openConnection({ socket: server.path });
    const stores = Array.from({ length: 10_000 }, (_, i) => `${"x".repeat(120)}-${i}`);
    const tooLong = await failure(agent.call("held", { stores }));
    expect(tooLong).toMatchObject({ kind: "invalid", exit: 64 });
    expect(tooLong.message).toContain("longer than 1 MiB");
    expect(await agent.call("held", { store: "a" })).toEqual({ held: true });
  });

  test("call() takes an answer of more than 1 MiB", async () => {
    await using server = await TestServer.start({
      held(params, _connection, reply) {
        const held = Object.create(null);
        for (const store of params.stores!) held[store] = true;
        reply.ok({ held });
      },
    });
    await using agent = await openConnection({ socket: server.path });
    const stores = Array.from({ length: 9_999 }, (_, i) => `${"x".repeat(95)}-${i}`);
    stores.push("__proto__");
    const { held } = await agent.call("held", { stores });
    expect(Object.keys(held)).toEqual(stores);
  });

  test("onNotification() tells what comes, in order with answers, until it is ended", async () => {
    await using server = await TestServer.start({
      ...HELD,
      guard(params, connection, reply) {
        reply.ok(GRANT);
        const { store } = params;
        connection.notify("expiring", { token: "token-1", store, deadline_boot_ms: 1 });
        connection.notify("lost", { token: "token-1", store, kind: "lost", message: "m" });
      },
    });
    await using agent = await openConnection({ socket: server.path });
    const seen: Notification[] = [];
    const end = agent.onNotification((notification) => seen.push(notification));
    await agent.call("guard", { store: "a" });
    await agent.call("held", { store: "a" });
    expect(seen.map(({ method }) => method)).toEqual(["expiring", "lost"]);
    end();
    await agent.call("guard", { store: "a" });
    await agent.call("held", { store: "a" });
    expect(seen).toHaveLength(2);
  });

  test("call() gives back a grant and a subscription that come after it was given up", async () => {
    const waiting: Reply<GuardResult & WatchResult>[] = [];
    const givenBack: string[] = [];
    const both = Promise.withResolvers<void>();
    function note(what: string) {
      givenBack.push(what);
      if (givenBack.length === 2) both.resolve();
    }
    await using server = await TestServer.start({
      ...HELD,
      guard: (_params, _connection, reply) => waiting.push(reply as never),
      watch: (_params, _connection, reply) => waiting.push(reply as never),
      release(params, _connection, reply) {
        reply.ok({});
        note(params.token);
      },
      unwatch(params, _connection, reply) {
        reply.ok({});
        note(params.subscription);
      },
    });
    await using agent = await openConnection({ socket: server.path });
    const control = new AbortController();
    const { signal } = control;
    const guard = agent.call("guard", { store: "a", wait_ms: 1_000 }, { signal });
    const watch = agent.call("watch", {}, { signal });
    const refused = agent.call("guard", { store: "b" }, { signal });
    await agent.call("held", { store: "a" });
    control.abort(new Error("changed my mind"));
    for (const call of [guard, watch, refused]) {
      expect(String(await call.catch((error) => error))).toBe("Error: changed my mind");
    }
    waiting[2].fail({ kind: "busy", message: "b" });
    waiting[0].ok({ ...GRANT, subscription: "" });
    waiting[1].ok({ ...GRANT, subscription: "sub-1" });
    await both.promise;
    expect(givenBack).toEqual(["token-1", "sub-1"]);
    expect(await agent.call("held", { store: "a" }, { signal }).catch(String)).toBe(
      "Error: changed my mind",
    );
  });

  test("calls fail as unavailable when the agent goes away, later ones too", async () => {
    const server = await TestServer.start({ guard: () => {} });
    const agent = await openConnection({ socket: server.path });
    const call = failure(agent.call("guard", { store: "a" }));
    await server[Symbol.asyncDispose]();
    const error = await call;
    expect(error).toBeInstanceOf(AgentUnreachable);
    expect(error).toMatchObject({ kind: "unavailable", code: -32000, exit: 69 });
    expect(error.message).toContain(`The agent at ${server.path} closed the connection`);
    expect((await agent.closed)!.message).toBe(error.message);
    expect(await failure(agent.call("guard", { store: "a" }))).toMatchObject({
      message: error.message,
      unknown: false,
    });
  });

  test("close() resolves closed with null and rejects what has no answer", async () => {
    await using server = await TestServer.start({ guard: () => {} });
    const agent = await openConnection({ socket: server.path });
    const call = failure(agent.call("guard", { store: "a" }));
    await agent.close();
    expect(await call).toBeInstanceOf(AgentUnreachable);
    expect(await agent.closed).toBeNull();
    expect(await failure(agent.call("held", { store: "a" }))).toBeInstanceOf(AgentUnreachable);
    await server.untilClosed(1);
  });

  test("calls fail with the reason when the agent does not take the connection", async () => {
    await using server = await TestServer.start(HELD, { maxConnections: 1 });
    await using first = await openConnection({ socket: server.path });
    expect(await first.call("held", { store: "a" })).toEqual({ held: true });
    const second = await openConnection({ socket: server.path });
    const error = await failure(second.call("held", { store: "a" }));
    expect(error).toMatchObject({ kind: "limit", code: -32010, exit: 75 });
    expect(await second.closed).toBe(error);
  });

  test.each(["HTTP/1.1 400 Bad Request\r\n\r\n", "5\n", "\xff\xfe\n", '"text"\n'])(
    "calls fail when what answers is no agent: %j",
    async (answer) => {
      using directory = new TemporaryDirectory();
      const path = join(directory.path, "x.sock");
      const server = await impostor(path, (socket) => socket.write(Buffer.from(answer, "latin1")));
      const agent = await openConnection({ socket: path });
      const error = await failure(agent.call("held", { store: "a" }));
      expect(error).toMatchObject({ kind: "internal", exit: 70 });
      expect(error.message).toContain(`${path} does not speak the agent's protocol`);
      server.close();
    },
  );

  test("ignores answers to nothing, members it does not know, and kinds it does not know", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "x.sock");
    const server = await impostor(path, (socket) => {
      socket.write(
        '{"jsonrpc":"2.0","id":99,"result":{}}\n{"jsonrpc":"2.0","id":null,"result":1}\n',
      );
      const error = { code: -32_050, message: "new", data: { kind: "toString" }, more: 1 };
      socket.once("data", () => socket.write(`${JSON.stringify({ id: 1, error, more: 1 })}\n`));
    });
    const agent = await openConnection({ socket: path });
    const error = await failure(agent.call("held", { store: "a" }));
    expect(error).toMatchObject({ kind: "internal", code: -32_050, message: "new", exit: 70 });
    await agent.close();
    server.close();
  });
});
