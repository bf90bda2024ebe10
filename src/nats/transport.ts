/**
 * The client library's transport, made to be found again: a dial that the library gave up on leaves
 * its socket open, and a server that hangs for an hour would collect thousands of them.
 * @module
 */
import {
  type ConnectionOptions,
  NatsConnectionImpl,
  type Server,
  setTransportFactory,
} from "@nats-io/transport-node";
import { nodeResolveHost, NodeTransport } from "@nats-io/transport-node/lib/node_transport.js";

interface TrackedOptions extends ConnectionOptions {
  readonly transports: Set<NodeTransport>;
}

class TrackedTransport extends NodeTransport {
  override connect(server: Server, options: ConnectionOptions): Promise<void> {
    (options as TrackedOptions).transports.add(this);
    return super.connect(server, options);
  }
}

/** Connects as the library does, and leaves nothing behind when that fails. */
export async function dial(options: ConnectionOptions): Promise<NatsConnectionImpl> {
  setTransportFactory({ factory: () => new TrackedTransport(), dnsResolveFn: nodeResolveHost });
  const transports = new Set<NodeTransport>();
  const tracked: TrackedOptions = { ...options, transports };
  try {
    return await NatsConnectionImpl.connect(tracked) as NatsConnectionImpl;
  } catch (error) {
    for (const transport of transports) transport.discard();
    throw error;
  }
}
