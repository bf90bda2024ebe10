/**
 * One connection to NATS, from its dial to its end. It is never mended: the client library would
 * keep what is published while it dials again, and send it late; a new connection cannot.
 * @module
 */
import {
  type NatsConnection,
  PermissionViolationError,
  type ServerInfo,
  type Status,
} from "@nats-io/transport-node";
import type { Credentials } from "./credentials.ts";
import { type Denial, explainDenial } from "./denials.ts";
import { SYNC_QUESTION } from "./syncing.ts";
import { dial, type Transport } from "./transport.ts";

/** How long a dial to one server may take, its TLS and authentication included, in milliseconds. */
const DIAL_TIMEOUT_MS = 2_000;

/** Two unanswered pings, 2 s apart, end a connection: a half-open one is found after 6 s. */
const PING_INTERVAL_MS = 2_000;
const MAX_PINGS_OUT = 2;

/** Where a server tells what was done to a stream; its name follows. */
export const STREAM_ADVISORIES = "$JS.EVENT.ADVISORY.STREAM.*.";
/** …and that it was deleted. */
export const DELETED = STREAM_ADVISORIES.replace("*", "DELETED");

/** What to dial. */
export interface LinkOptions {
  readonly servers: readonly string[];
  /** The client's name in the server's reports. */
  readonly name: string;
  readonly credentials: Credentials;
}

/** The part of the client library that knows, at once, whether there is a connection. */
interface Internals {
  readonly protocol?: { readonly connected?: unknown };
}

/** A connection that is up, or was. */
export class Link {
  readonly nc: NatsConnection;
  /** The way past the library. */
  readonly transport: Transport;
  /** Resolves with the reason when the connection is down, for good. */
  readonly down: Promise<string>;
  /** The server as it was named to us, and its port. */
  readonly named: string;
  /** The server's URL, without credentials. */
  readonly server: string;
  readonly serverVersion: string;
  /** The newest thing that the server forbade us, in words; null if nothing. */
  forbidden: string | null = null;
  /** Whether we ended it, and not the server or the network. */
  closedByUs = false;
  readonly #protocol: { readonly connected: boolean };
  #ended = false;
  #end!: (reason: string) => void;
  #downHook: ((reason: string) => void) | null = null;
  #deniedHook: ((denial: Denial) => void) | null = null;

  /** Dials the servers, in random order, each once. Rejects with why the last one failed. */
  static async open(options: LinkOptions): Promise<Link> {
    const { authenticators, tls } = options.credentials;
    const { nc, transport } = await dial({
      servers: [...options.servers],
      name: options.name,
      authenticator: authenticators,
      tls,
      reconnect: false,
      timeout: DIAL_TIMEOUT_MS,
      pingInterval: PING_INTERVAL_MS,
      maxPingOut: MAX_PINGS_OUT,
      // Or the second server that refuses us would keep the third from being asked.
      ignoreAuthErrorAbort: true,
      noAsyncTraces: true,
    });
    return new Link(nc, transport);
  }

  private constructor(nc: NatsConnection, transport: Transport) {
    const { protocol } = nc as unknown as Internals;
    if (typeof protocol?.connected !== "boolean") {
      throw new Error("The NATS client library no longer tells whether it is connected");
    }
    this.nc = nc;
    this.transport = transport;
    this.#protocol = protocol as { connected: boolean };
    this.named = transport.server;
    this.server = `${transport.isEncrypted() ? "tls" : "nats"}://${nc.getServer()}`;
    this.serverVersion = nc.info?.version ?? "unknown";
    this.down = new Promise((resolve) => (this.#end = resolve));
    this.#watch();
    nc.closed().then((error) => this.#ending(error?.message ?? "closed"));
  }

  /** What the server says of itself. */
  get info(): ServerInfo | undefined {
    return this.nc.info;
  }

  /** Whether what is published now goes out now. */
  get isUp(): boolean {
    return !this.#ended && this.#protocol.connected;
  }

  /** Called when the connection goes down, in the very turn in which that is known. */
  onDown(hook: (reason: string) => void): void {
    this.#downHook = hook;
  }

  /** Called when the server denies something that was sent. */
  onDenied(hook: (denial: Denial) => void): void {
    this.#deniedHook = hook;
  }

  /** It is of no use any more, which is none of our doing. */
  fail(reason: string): void {
    this.#ending(reason);
  }

  /** Ends the connection. */
  async close(reason: string): Promise<void> {
    if (!this.#ended) this.closedByUs = true;
    this.#ending(reason);
    await this.nc.closed();
  }

  #ending(reason: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#downHook?.(reason);
    this.#end(reason);
    this.nc.close().catch(() => {});
  }

  async #watch(): Promise<void> {
    for await (const status of this.nc.status()) this.#see(status);
  }

  #see(status: Status): void {
    switch (status.type) {
      case "staleConnection":
        return this.#ending("the server does not answer pings");
      case "disconnect":
        return this.#ending(`${this.server} closed the connection`);
      case "error":
        if (status.error instanceof PermissionViolationError) {
          // Nothing fails without them: they make us notice sooner, or warn.
          const { subject } = status.error;
          if (subject.startsWith(STREAM_ADVISORIES) || subject === SYNC_QUESTION) return;
          this.forbidden = explainDenial(status.error);
          this.#deniedHook?.(status.error);
        } else {
          this.#ending(status.error.message);
        }
    }
  }
}
