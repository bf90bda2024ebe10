/** A way to a server that can be cut for one of its clients. */
import { connect, createServer, type Server, type Socket } from "node:net";

/** Passes connections on to a port of this machine, until it is cut. */
export class Cut {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isCut = false;

  /** A way to `port`. */
  static async of(port: number): Promise<Cut> {
    const cut = new Cut(port);
    await new Promise<void>((resolve) => cut.#server.listen(0, "127.0.0.1", resolve));
    return cut;
  }

  private constructor(port: number) {
    this.#server = createServer((client) => {
      if (this.#isCut) return void client.destroy();
      const upstream = connect(port, "127.0.0.1");
      for (const [from, to] of [[client, upstream], [upstream, client]] as const) {
        this.#sockets.add(from);
        from.on("error", () => {}); // the close that follows says enough
        from.on("close", () => {
          this.#sockets.delete(from);
          to.destroy();
        });
        from.pipe(to);
      }
    });
  }

  /** For `--nats`. */
  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("It does not listen");
    return `nats://127.0.0.1:${address.port}`;
  }

  /** Ends every connection, and each new one at once. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
