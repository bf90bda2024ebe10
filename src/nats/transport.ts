/**
 * The client library's transport, with a way past the library for what is sent and answered all the
 * time; and made to be found again: a dial that the library gave up on leaves its socket open, and a
 * server that hangs for an hour would collect thousands of them.
 * @module
 */
import type { Buffer } from "node:buffer";
import {
  type ConnectionOptions,
  NatsConnectionImpl,
  type Server,
  setTransportFactory,
} from "@nats-io/transport-node";
import { nodeResolveHost, NodeTransport } from "@nats-io/transport-node/lib/node_transport.js";
import { type Reply, ReplyReader } from "./reply_reader.ts";

interface TrackedOptions extends ConnectionOptions {
  readonly transports: Set<Transport>;
}

/** A connection's bytes. */
export class Transport extends NodeTransport {
  #replies: ReplyReader | null = null;

  override connect(server: Server, options: ConnectionOptions): Promise<void> {
    (options as TrackedOptions).transports.add(this);
    return super.connect(server, options);
  }

  override setupHandlers(): void {
    super.setupHandlers();
    this.socket.removeAllListeners("data");
    this.socket.on("data", (chunk: Buffer) => this.#read(chunk));
  }

  /** Has the replies to the subjects `prefix` and a number told to `take`, and not to the library. */
  takeReplies(prefix: string, take: (id: number, reply: Reply) => void): void {
    this.#replies = new ReplyReader(prefix, take);
  }

  /** Sends whole commands of the protocol now: between, not within, those of the library. */
  write(commands: string): void {
    // The library takes its socket away before it says that it is closed.
    const socket = this.socket as typeof this.socket | undefined;
    if (!this.isClosed && socket?.destroyed === false) socket.write(commands);
  }

  #read(chunk: Buffer): void {
    const rest = this.#replies === null ? chunk : this.#replies.read(chunk);
    if (rest === null) return;
    this.yields.push(rest);
    this.signal.resolve();
  }
}

/** Connects as the library does, and leaves nothing behind when that fails. */
export async function dial(
  options: ConnectionOptions,
): Promise<{ nc: NatsConnectionImpl; transport: Transport }> {
  setTransportFactory({ factory: () => new Transport(), dnsResolveFn: nodeResolveHost });
  const transports = new Set<Transport>();
  const tracked: TrackedOptions = { ...options, transports };
  try {
    const nc = await NatsConnectionImpl.connect(tracked) as NatsConnectionImpl;
    const transport = [...transports].find((each) => each.connected && !each.isClosed);
    if (transport === undefined) throw new Error("the connection was closed at once");
    return { nc, transport };
  } catch (error) {
    for (const transport of transports) transport.discard();
    throw error;
  }
}
