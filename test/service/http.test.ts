/** The pages for monitors: what they answer, where they listen, and what they bound. */
import { afterEach, describe, expect, test } from "bun:test";
import { createConnection, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { HttpServer, MAX_CONNECTIONS, text } from "../../src/service/http.ts";

const servers: HttpServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
});

async function serve(address = "127.0.0.1:0"): Promise<HttpServer> {
  const server = await HttpServer.listen(address, {
    "/page": () => ({ status: 200, ...text("hello\n") }),
    "/down": () => ({ status: 503, ...text("not now\n") }),
    "/fault": () => Promise.reject(new Error("a fault")),
  });
  servers.push(server);
  return server;
}

function dial(server: HttpServer): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: "127.0.0.1", port: server.port });
    socket.once("connect", () => resolve(socket));
    socket.once("error", reject);
  });
}

/** All that a connection is sent until it is closed. */
function answerOf(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let answer = "";
    socket.on("data", (chunk) => answer += chunk);
    socket.on("error", () => {});
    socket.on("close", () => resolve(answer));
  });
}

async function ask(server: HttpServer, request: string): Promise<string> {
  const socket = await dial(server);
  const answer = answerOf(socket);
  socket.write(request);
  return await answer;
}

describe("HttpServer", () => {
  test.each([
    ["/page", 200, "hello\n"],
    ["/page?a=b", 200, "hello\n"],
    ["/down", 503, "not now\n"],
    ["/fault", 500, "a fault\n"],
    ["/other", 404, "There are /page, /down, /fault.\n"],
    ["/__proto__", 404, "There are /page, /down, /fault.\n"],
  ])("answers GET %s with %p", async (path, status, body) => {
    const response = await fetch(`http://127.0.0.1:${(await serve()).port}${path}`);
    expect([response.status, await response.text()]).toEqual([status, body]);
  });

  test.each(["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])("refuses %s", async (method) => {
    const answer = await ask(await serve(), `${method} /page HTTP/1.1\r\nHost: x\r\n\r\n`);
    expect(answer).toStartWith("HTTP/1.1 405 Method Not Allowed\r\n");
    expect(answer).toContain("\r\nAllow: GET\r\n");
  });

  test("refuses what is no HTTP, and a request that is too long, before it is all read", async () => {
    const server = await serve();
    expect(await ask(server, "hello\r\n\r\n")).toStartWith("HTTP/1.1 400 ");
    const long = `GET /page HTTP/1.1\r\nX: ${"x".repeat(9_000)}`;
    expect(await ask(server, long)).toStartWith("HTTP/1.1 431 ");
    expect(await ask(server, `${long}\r\n\r\n`)).toStartWith("HTTP/1.1 431 ");
  });

  test("takes a request in pieces", async () => {
    const socket = await dial(await serve());
    const answer = answerOf(socket);
    for (const piece of ["GET /pa", "ge HTTP/1.1\r\nHost: x\r\n\r", "\n"]) {
      await new Promise<void>((resolve) => socket.write(piece, () => resolve()));
    }
    expect(await answer).toEndWith("\r\n\r\nhello\n");
  });

  test(
    "closes connections beyond its bound, serves again when some are gone, and ends slow ones",
    async () => {
      const server = await serve();
      const idle = await Promise.all(Array.from({ length: MAX_CONNECTIONS }, () => dial(server)));
      const ended = idle.map(answerOf);
      const turnedAway = await dial(server).catch(() => null);
      if (turnedAway !== null) expect(await answerOf(turnedAway)).toBe("");
      // None of them ever asks: each is closed in time, and there is room again.
      expect(await Promise.all(ended)).toEqual(idle.map(() => ""));
      expect(await ask(server, "GET /page HTTP/1.1\r\n\r\n")).toContain("hello");
    },
    20_000,
  );

  test("listens only where it is told", async () => {
    const server = await serve("127.0.0.1:0");
    const elsewhere = Object.values(networkInterfaces()).flat()
      .find((each) => each?.family === "IPv4" && !each.internal)?.address ?? "127.0.0.2";
    const reached = await fetch(`http://${elsewhere}:${server.port}/page`).then(
      () => true,
      () => false,
    );
    expect(reached).toBe(false);
    const v6 = await serve("[::1]:0");
    expect((await fetch(`http://[::1]:${v6.port}/page`)).status).toBe(200);
    expect(await fetch(`http://127.0.0.1:${v6.port}/page`).then(() => true, () => false)).toBe(
      false,
    );
  });

  test("says why it cannot listen", async () => {
    const { port } = await serve();
    await expect(serve(`127.0.0.1:${port}`)).rejects.toThrow(
      `Cannot serve HTTP at 127.0.0.1:${port}: address already in use (EADDRINUSE); give another`,
    );
  });
});
