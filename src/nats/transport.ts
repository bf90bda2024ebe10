/**
 * The client library's transport, with a way past the library for what is sent and answered all the
 * time; and made to be found again: a dial that the library gave up on leaves its socket open, and a
 * server that hangs for an hour would collect thousands of them.
 * @module
 */
import type { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import {
  type ConnectionOptions,
  NatsConnectionImpl,
  type Server,
  type ServerInfo,
  setTransportFactory,
} from "@nats-io/transport-node";
import { nodeResolveHost, NodeTransport } from "@nats-io/transport-node/lib/node_transport.js";
import { type Reply, ReplyReader } from "./reply_reader.ts";

interface TrackedOptions extends ConnectionOptions {
  readonly transports: Set<Transport>;
}

/** How far the dial of one server came. */
export interface Attempt {
  /** As it was named to us, and its port. */
  readonly server: string;
  /** Whether it accepted the connection. */
  readonly accepted: boolean;
  /** What it says of itself first; null if it did not. */
  readonly greeting: ServerInfo | null;
  /** Why it failed; null where nothing was said. */
  readonly failure: Error | null;
}

/** No server could be connected to. */
export class DialError extends Error {
  override readonly name = "DialError";
  readonly attempts: readonly Attempt[];

  constructor(attempts: readonly Attempt[], cause: unknown) {
    super("no server could be connected to", { cause });
    this.attempts = attempts;
  }
}

/** A connection's bytes. */
export class Transport extends NodeTransport implements Attempt {
  server = "";
  accepted = false;
  greeting: ServerInfo | null = null;
  failure: Error | null = null;
  #replies: ReplyReader | null = null;

  override connect(server: Server, options: ConnectionOptions): Promise<void> {
    (options as TrackedOptions).transports.add(this);
    this.server = `${server.tlsName || server.hostname}:${server.port}`;
    return super.connect(server, options);
  }

  override async dial(server: { hostname: string; port: number }): Promise<Socket> {
    const socket = await super.dial(server);
    this.accepted = true;
    return socket;
  }

  override async peekInfo(): Promise<ServerInfo> {
    this.greeting = await super.peekInfo();
    return this.greeting;
  }

  /** Told why where the dial failed. */
  override close(error?: Error): Promise<void> {
    this.failure ??= error ?? null;
    return super.close(error);
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

/**
 * Connects as the library does, and leaves nothing behind when that fails.
 *
 * @throws {DialError}
 */
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
    throw new DialError([...transports], error);
  }
}
