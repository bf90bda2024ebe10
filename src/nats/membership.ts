/**
 * Whether a server is the coordinator, or only another nats-server: one that is in no cluster keeps
 * leases of its own, which whoever is connected to the others does not see.
 * @module
 */
import { lookup } from "node:dns/promises";
import type { ServerInfo } from "@nats-io/transport-node";
import { type Address, greet } from "./greeting.ts";
import type { NatsOptions, ServerMemory } from "./options.ts";
import type { Finding } from "./setup_error.ts";

/** NATS' port for clients, where a URL names none. */
const DEFAULT_PORT = 4222;

/** How long a name may take to resolve, in milliseconds: a dial waits for it. */
const LOOKUP_TIMEOUT_MS = 1_000;

/** As many addresses of one name are asked: a name for more is no name of servers. */
const MAX_ADDRESSES = 16;

/** A connection, as far as it matters here. */
export interface Member {
  /** The server as it was named to us, and its port; IPv6 without brackets. */
  readonly named: string;
  /** The server's URL. */
  readonly server: string;
  readonly info: ServerInfo | undefined;
}

/** What a URL names, an IPv6 address without its brackets. */
export function addressOf(url: string): Address {
  const text = url.replace(/^\w+:\/\//, "").replace(/\/$/, "");
  const match = /^(?:\[(.+)\]|([^:]*))(?::(\d+))?$/.exec(text);
  if (match === null) return { host: text, port: DEFAULT_PORT }; // IPv6 as it is
  return { host: match[1] ?? match[2], port: Number(match[3] ?? DEFAULT_PORT) };
}

/** An address as a {@linkcode Member} is named. */
export function nameOf({ host, port }: Address): string {
  return `${host}:${port}`;
}

/** A server that answers at an address, or does not. */
interface Answer {
  readonly name: string;
  readonly info: ServerInfo | null;
}

/** Which servers may be used. */
export class Membership {
  readonly #addresses: readonly Address[];
  readonly #allowUnsafe: boolean;
  readonly #bucket: string;
  readonly #memory: ServerMemory | undefined;
  /** Whether a server was used that is in a cluster: then none will do that is not. */
  #clustered: boolean;

  constructor(
    { urls, bucket, memory, allowUnsafeServer = false }: NatsOptions & { readonly bucket: string },
  ) {
    this.#bucket = bucket;
    this.#memory = memory;
    this.#clustered = memory?.wasClustered(bucket) ?? false;
    const addresses = urls.map(addressOf);
    const names = addresses.map(nameOf);
    this.#addresses = addresses.filter((_, index) => names.indexOf(names[index]) === index);
    this.#allowUnsafe = allowUnsafeServer;
  }

  /** Whether a server without a cluster must not be taken for the coordinator. */
  get mustBeClustered(): boolean {
    return !this.#allowUnsafe && (this.#clustered || this.#addresses.length > 1);
  }

  /** The server is in use. */
  used({ info }: Member): void {
    if (info?.cluster === undefined || this.#clustered) return;
    this.#clustered = true;
    this.#memory?.rememberClustered(this.#bucket);
  }

  /** Why the server must not be used; null where it may be. Takes two seconds at most. */
  async refusal(member: Member): Promise<Finding | null> {
    return this.#allowUnsafe ? null : await this.#apart(member, "so it is not used");
  }

  /** What a person should know of the servers in `--nats`, with this one in use; null: nothing. */
  async survey(member: Member): Promise<Finding | null> {
    if (member.info?.cluster === undefined) {
      return this.#allowUnsafe
        ? await this.#apart(member, "so two nodes can hold one store (accepted)")
        : null;
    }
    const strays = (await this.#ask()).flat()
      .filter(({ info }) => info !== null && info.cluster === undefined);
    if (strays.length === 0) return null;
    const names = [...new Set(strays.map(({ name }) => name))].join(", ");
    return finding(
      `--nats names ${names}, not in a cluster, beside ${member.server}, which is in one: it keeps ` +
        `none of these leases and is not used. ${REJOIN}, or take it out of --nats`,
    );
  }

  /** Whether leases in this server are apart from those that others see, or may be. */
  async #apart({ info, server }: Member, then: string): Promise<Finding | null> {
    if (info?.cluster !== undefined) return null;
    if (this.#clustered) {
      return finding(
        `${server} is not in a cluster, but the servers that this agent has used are: it does not ` +
          `share their leases, ${then}. ${REJOIN}; if it is to do alone from now on, stop all agents, ` +
          "remove the file clusters from their state directories, and start them with its URL alone",
      );
    }
    for (const answers of await this.#ask()) {
      const other = answers.find((each) =>
        each.info !== null && each.info.server_id !== info?.server_id
      );
      if (other !== undefined) {
        return finding(
          `${server} is not in a cluster, but --nats names ${other.name}, too, which is another ` +
            `server: they do not share the leases, ${then}. Cluster them, or correct --nats`,
        );
      }
      // Of a name's addresses some may lead nowhere, as localhost's often do.
      if (this.#addresses.length > 1 && answers.every((each) => each.info === null)) {
        return finding(
          `${server} is not in a cluster, and ${
            answers[0].name
          }, which --nats names, too, does not ` +
            `answer: if that is another server they do not share the leases, ${then}. Cluster them, ` +
            "or name only one server in --nats",
        );
      }
    }
    return null;
  }

  /** Greets every server that is named, at each of its addresses. */
  async #ask(): Promise<readonly (readonly [Answer, ...Answer[]])[]> {
    return await Promise.all(this.#addresses.map(async (address) => {
      const name = nameOf(address);
      const hosts = await hostsOf(address);
      // Nobody else is there to be found.
      if (this.#addresses.length === 1 && hosts.length < 2) return [{ name, info: null }] as const;
      const answers = await Promise.all(hosts.map(async (host) => {
        const info = await greet({ host, port: address.port });
        return { name: host === address.host ? name : `${name} (${host})`, info };
      }));
      return [answers[0] ?? { name, info: null }, ...answers.slice(1)] as const;
    }));
  }
}

const REJOIN = "Give it the cluster block of the others (name, listen, routes) and restart it";

function finding(message: string): Finding {
  return { check: "servers", message };
}

/** The addresses that a name stands for; none where it does not resolve in time. */
async function hostsOf({ host }: Address): Promise<string[]> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("timeout")), LOOKUP_TIMEOUT_MS);
  try {
    const found = await Promise.race([lookup(host, { all: true }), late]);
    return found.slice(0, MAX_ADDRESSES).map(({ address }) => address);
  } catch {
    return [];
  } finally {
    clearTimeout(timer);
  }
}
