/**
 * What an operator, or another program, does to NATS in a test.
 * @module
 */
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";

/** A connection of somebody else. */
export class Admin {
  readonly nc: NatsConnection;
  readonly jsm: JetStreamManager;

  static async connect(
    url: string,
    credentials: { readonly user?: string; readonly pass?: string } = {},
  ): Promise<Admin> {
    const nc = await connect({ servers: url, maxReconnectAttempts: -1, ...credentials });
    return new Admin(nc, await jetstreamManager(nc, { checkAPI: false }));
  }

  private constructor(nc: NatsConnection, jsm: JetStreamManager) {
    this.nc = nc;
    this.jsm = jsm;
  }

  /** Writes a key whatever is there; its revision. */
  async put(bucket: string, key: string, value: string | Uint8Array): Promise<number> {
    const reply = await this.nc.request(`$KV.${bucket}.${key}`, value);
    return reply.json<{ seq: number }>().seq;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.nc.close();
  }
}
