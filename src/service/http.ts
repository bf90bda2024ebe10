/**
 * A few pages for monitors over HTTP/1: GET only, an answer a connection.
 *
 * On plain sockets because these can be bounded: the runtime's own HTTP servers take any number of
 * connections, and the agent must never run out of descriptors.
 * @module
 */
import { createServer, type Server, type Socket } from "node:net";
import { reasonOf } from "../sys/errno.ts";
import { EXIT_CANNOT_CREATE } from "../sys/exit.ts";

/** More than a monitor's request has; what is longer is refused. */
const MAX_REQUEST_BYTES = 8_192;

/** Several monitors at once; more are closed at once. */
export const MAX_CONNECTIONS = 16;

/** How long a request may take to arrive, and an answer to be taken. */
const PATIENCE_MS = 5_000;

/** What a page answers. */
export interface Page {
  readonly status: 200 | 503;
  readonly type: string;
  readonly body: string;
}

/** The pages, by path. */
export type Pages = Readonly<Record<string, () => Page | Promise<Page>>>;

/** Why the pages cannot be served. */
export class HttpError extends Error {
  override readonly name = "HttpError";
  /** The exit status of a program that ends because of it. */
  readonly exit = EXIT_CANNOT_CREATE;
}

const REASONS: Readonly<Record<number, string>> = {
  200: "OK",
  400: "Bad Request",
  404: "Not Found",
  405: "Method Not Allowed",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  503: "Service Unavailable",
};

/** Serves pages at an address. */
export class HttpServer {
  readonly #pages: Pages;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  /**
   * Listens on `HOST:PORT`; nowhere else.
   *
   * @throws {HttpError} if that cannot be.
   */
  static async listen(address: string, pages: Pages): Promise<HttpServer> {
    const http = new HttpServer(pages);
    const at = address.lastIndexOf(":");
    const host = address.slice(0, at).replace(/^\[(.*)\]$/, "$1");
    await new Promise<void>((resolve, reject) => {
      http.#server.once("error", (error) => {
        const why = `${reasonOf(error)}; give another address with --http`;
        reject(new HttpError(`Cannot serve HTTP at ${address}: ${why}`));
      });
      const port = Number(address.slice(at + 1));
      http.#server.listen(host === "" ? { port } : { port, host }, resolve);
    });
    return http;
  }

  private constructor(pages: Pages) {
    this.#pages = pages;
    this.#server = createServer((socket) => this.#serve(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** The port it listens on. */
  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  /** Ends it, and every connection. */
  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #serve(socket: Socket): void {
    // Where the runtime does not count, we do.
    if (this.#sockets.size >= MAX_CONNECTIONS) return void socket.destroy();
    this.#sockets.add(socket);
    // From the beginning, whatever is sent meanwhile: a request may not be dripped in for ever.
    const timer = setTimeout(() => socket.destroy(), PATIENCE_MS);
    socket.on("close", () => {
      clearTimeout(timer);
      this.#sockets.delete(socket);
    });
    socket.on("error", () => socket.destroy());
    let head = "";
    const onData = (chunk: Buffer) => {
      head += chunk.toString("latin1");
      const complete = head.includes("\r\n\r\n");
      if (!complete && head.length <= MAX_REQUEST_BYTES) return;
      socket.off("data", onData);
      socket.on("data", () => {}); // Read and dropped, so that the answer is not reset away.
      if (complete && head.indexOf("\r\n\r\n") <= MAX_REQUEST_BYTES) {
        void this.#answer(socket, head);
      } else send(socket, 431, text("The request is too long.\n"));
    };
    socket.on("data", onData);
  }

  async #answer(socket: Socket, head: string): Promise<void> {
    const [, method, target = ""] = /^([A-Z]+) (\/[^ ]*) HTTP\/1\.[01]\r\n/.exec(head) ?? [];
    if (method === undefined) return send(socket, 400, text("This is no HTTP request.\n"));
    if (method !== "GET") return send(socket, 405, text("Only GET.\n"));
    const path = target.split("?")[0];
    const page = Object.hasOwn(this.#pages, path) ? this.#pages[path] : undefined;
    if (page === undefined) {
      return send(socket, 404, text(`There are ${Object.keys(this.#pages).join(", ")}.\n`));
    }
    try {
      const answer = await page();
      send(socket, answer.status, answer);
    } catch (error) {
      send(socket, 500, text(`${(error as Error).message}\n`));
    }
  }
}

/** A page of plain text. */
export function text(body: string): Pick<Page, "type" | "body"> {
  return { type: "text/plain; charset=utf-8", body };
}

function send(socket: Socket, status: number, { type, body }: Pick<Page, "type" | "body">): void {
  const bytes = Buffer.from(body);
  const head = [
    `HTTP/1.1 ${status} ${REASONS[status]}`,
    `Content-Type: ${type}`,
    `Content-Length: ${bytes.length}`,
    ...(status === 405 ? ["Allow: GET"] : []),
    "Cache-Control: no-store",
    "X-Content-Type-Options: nosniff",
    "Connection: close",
  ];
  socket.end(Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`), bytes]));
}
