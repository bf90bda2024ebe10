/**
 * The network of a run: a namespace for each host with an interface on a common bridge, so that
 * packets between hosts can be dropped by nftables; or, where that cannot be had, the loopback.
 * @module
 */
import { freePort } from "../support/nats.ts";

/** A host: where its programs run and how others reach it. */
export interface Host {
  readonly name: string;
  readonly ip: string;
  /** A port for a service; on the loopback it may not be the one that was wanted. */
  port(wanted: number): Promise<number>;
  /** The command line that runs a command on this host, as the process that it starts. */
  on(command: readonly string[]): string[];
}

/** Hosts and what can be done to the packets between them. */
export interface Network {
  readonly kind: "namespaces" | "loopback";
  host(name: string): Host;
  /** `to` hears nothing from `from` any more. */
  cut(from: string, to: string): Promise<void>;
  /** A host loses so many percent of the packets that it is sent, by anybody or by these others. */
  lose(name: string, percent: number, from?: readonly string[]): Promise<void>;
  /** Undoes every cut and loss. */
  heal(): Promise<void>;
}

/** Runs a command to its end; throws with what it said if it fails. */
export async function run(command: readonly string[], stdin = ""): Promise<string> {
  const child = Bun.spawn([...command], {
    stdin: new Blob([stdin]),
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err, status] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  if (status !== 0) throw new Error(`${command.join(" ")} failed (${status}): ${err}`);
  return out;
}

/** Only ever seen inside the namespaces of one run. */
const PREFIX = "10.77.0.";
/** The bridge's own address: where the runner, as operator, is. */
const OPERATOR = 254;

/**
 * Makes the namespaces. This process must be alone in a network and a mount namespace of its own
 * (scripts/chaos sees to it), which end with it: nothing is left behind, whatever happens.
 */
export async function makeNamespaces(names: readonly string[]): Promise<Network> {
  await run(["ip", "link", "set", "lo", "up"]);
  await run(["ip", "link", "add", "hub", "type", "bridge"]);
  await run(["ip", "addr", "add", `${PREFIX}${OPERATOR}/24`, "dev", "hub"]);
  await run(["ip", "link", "set", "hub", "up"]);
  for (const [index, name] of names.entries()) {
    await run(["ip", "netns", "add", name]);
    await run(["ip", "link", "add", `v-${name}`, "type", "veth", "peer", "eth0", "netns", name]);
    await run(["ip", "link", "set", `v-${name}`, "master", "hub", "up"]);
    await run(["ip", "-n", name, "addr", "add", `${PREFIX}${index + 1}/24`, "dev", "eth0"]);
    await run(["ip", "-n", name, "link", "set", "lo", "up"]);
    await run(["ip", "-n", name, "link", "set", "eth0", "up"]);
  }
  return new Namespaces(names);
}

interface Filter {
  readonly deafTo: Set<string>;
  lossPercent: number;
  /** Whose packets are lost; null for everybody's. */
  lossFrom: readonly string[] | null;
}

function noFilter(): Filter {
  return { deafTo: new Set(), lossPercent: 0, lossFrom: null };
}

class Namespaces implements Network {
  readonly kind = "namespaces";
  readonly #names: readonly string[];
  readonly #filters = new Map<string, Filter>();

  constructor(names: readonly string[]) {
    this.#names = names;
    for (const name of names) this.#filters.set(name, noFilter());
  }

  host(name: string): Host {
    return {
      name,
      ip: this.#ip(name),
      port: (wanted) => Promise.resolve(wanted),
      // `ip netns exec` becomes the command: the process id is the command's.
      on: (command) => ["ip", "netns", "exec", name, ...command],
    };
  }

  async cut(from: string, to: string): Promise<void> {
    this.#filters.get(to)!.deafTo.add(from);
    await this.#apply(to);
  }

  async lose(name: string, percent: number, from?: readonly string[]): Promise<void> {
    const filter = this.#filters.get(name)!;
    filter.lossPercent = percent;
    filter.lossFrom = from ?? null;
    await this.#apply(name);
  }

  async heal(): Promise<void> {
    for (const [name, filter] of this.#filters) {
      if (filter.deafTo.size === 0 && filter.lossPercent === 0) continue;
      this.#filters.set(name, noFilter());
      await this.#apply(name);
    }
  }

  #ip(name: string): string {
    return PREFIX + (this.#names.indexOf(name) + 1);
  }

  /** Replaces a host's rules as a whole, in one transaction. */
  async #apply(name: string): Promise<void> {
    const { deafTo, lossPercent, lossFrom } = this.#filters.get(name)!;
    const rules = [...deafTo].map((from) => `ip saddr ${this.#ip(from)} drop`);
    if (lossPercent > 0) {
      const whose = lossFrom === null
        ? [`iifname "eth0"`]
        : lossFrom.map((from) => `ip saddr ${this.#ip(from)}`);
      rules.push(...whose.map((each) => `${each} numgen random mod 100 < ${lossPercent} drop`));
    }
    const table = [
      "table inet chaos {",
      "chain in {",
      "type filter hook input priority 0; policy accept;",
      ...rules,
      "}",
      "}",
    ].join("\n");
    const script = `table inet chaos\ndelete table inet chaos\n${table}\n`;
    await run(["ip", "netns", "exec", name, "nft", "-f", "-"], script);
  }
}

/** All hosts on 127.0.0.1. Nothing can be cut here: proxies have to do that. */
export class Loopback implements Network {
  readonly kind = "loopback";

  host(name: string): Host {
    return {
      name,
      ip: "127.0.0.1",
      port: () => freePort(),
      on: (command) => [...command],
    };
  }

  cut(): Promise<void> {
    throw new Error("Nothing can be cut on the loopback");
  }

  lose(): Promise<void> {
    throw new Error("Nothing can be lost on the loopback");
  }

  heal(): Promise<void> {
    return Promise.resolve();
  }
}
