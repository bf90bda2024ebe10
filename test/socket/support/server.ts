/**
 * A server on a socket of its own, in this process or another one, and clients that send what they like.
 * @module
 */
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConnectionHandle, Handlers } from "../../../src/socket/handlers.ts";
import { type ServerOptions, SocketServer } from "../../../src/socket/server.ts";
import { isSocketBound, peerOf, sendWithDescriptor } from "../../../src/sys/unix_socket.ts";

/** A directory that is gone when disposed of. */
export class TemporaryDirectory {
  readonly path = mkdtempSync(join(tmpdir(), "zit-socket-"));

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** Options of a server that lets everybody do everything. */
export function openOptions(handlers: Handlers): ServerOptions {
  return {
    handlers,
    maxConnections: 1_024,
    descriptors: 65_536,
    maxInFlight: 16_384,
    peerCredentials: peerOf,
    sendWithFd: sendWithDescriptor,
    socketBound: isSocketBound,
    mayConnect: () => null,
    mayCall: () => null,
    onClose: () => {},
    onError: () => {},
  };
}

/** A server that listens in this process. */
export class TestServer {
  readonly path: string;
  readonly server: SocketServer;
  readonly errors: Error[] = [];
  /** Ids of connections that closed, in order. */
  readonly closed: number[] = [];
  readonly #directory = new TemporaryDirectory();
  readonly #waiting: (() => void)[] = [];

  private constructor(handlers: Handlers, options: Partial<ServerOptions>) {
    this.path = join(this.#directory.path, "agent.sock");
    this.server = new SocketServer({
      ...openOptions(handlers),
      onError: (error) => this.errors.push(error),
      ...options,
      onClose: (connection: ConnectionHandle) => {
        this.closed.push(connection.id);
        for (const wake of this.#waiting.splice(0)) wake();
        options.onClose?.(connection);
      },
    });
  }

  static async start(
    handlers: Handlers,
    options: Partial<ServerOptions> = {},
  ): Promise<TestServer> {
    const server = new TestServer(handlers, options);
    await server.server.listen(server.path);
    return server;
  }

  /** Waits until `count` connections have closed. */
  async untilClosed(count: number): Promise<void> {
    while (this.closed.length < count) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.stop();
    this.#directory[Symbol.dispose]();
  }
}

/** A message as it came. */
// deno-lint-ignore no-explicit-any -- tests look into whatever came
export type Message = any;

/** A client without manners: sends any bytes, reads when told to. */
export class RawClient {
  readonly socket: Socket;
  #text = "";
  #ended = false;
  #wake: () => void = () => {};

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setEncoding("utf8");
    socket.on("data", (text: string) => {
      this.#text += text;
      this.#wake();
    });
    socket.on("error", () => {});
    for (const event of ["end", "close"]) {
      socket.on(event, () => {
        this.#ended = true;
        this.#wake();
      });
    }
  }

  static connect(path: string): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connect({ path, allowHalfOpen: true });
      socket.once("error", reject);
      socket.once("connect", () => resolve(new RawClient(socket)));
    });
  }

  send(data: string | Uint8Array): void {
    this.socket.write(data);
  }

  /** Sends a request with `id`. */
  request(id: unknown, method: string, params?: unknown): void {
    this.send(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
  }

  /** The next line, or null at the end of the connection. */
  async line(): Promise<string | null> {
    while (true) {
      const end = this.#text.indexOf("\n");
      if (end >= 0) {
        const line = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 1);
        return line;
      }
      if (this.#ended) return null;
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
  }

  /** The next message. */
  async message(): Promise<Message> {
    const line = await this.line();
    if (line === null) throw new Error("The server closed the connection");
    return JSON.parse(line);
  }

  [Symbol.dispose](): void {
    this.socket.destroy();
  }
}

/** Runs a Python program, a client not written by us; the result is what it printed. */
export async function python(program: string, ...args: string[]): Promise<string> {
  const child = Bun.spawn(["python3", "-c", program, ...args], {
    stdout: "pipe",
    stderr: "inherit",
  });
  const output = await new Response(child.stdout).text();
  const status = await child.exited;
  if (status !== 0) throw new Error(`python3 exited with ${status}`);
  return output;
}

/** Starts a program of these tests under Bun. */
export function spawnProgram(file: string, ...args: string[]) {
  return Bun.spawn([process.execPath, join(import.meta.dir, file), ...args], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
}
