/**
 * What the exchanges are held with: real agents, each set up for what it is to say, and the variables
 * that each exchange begins with. README.md tells what the scenes are.
 * @module
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const DIRECTORY = join(import.meta.dir, "exchanges");

/** Long enough for a busy machine, and short enough to see renewals and losses. */
const TTL = ["--ttl", "6s"];
/** A user that is not us. */
const NOBODY = "54321";
/** An epoch that no revision reaches while these tests are of interest: the year 2255, in µs. */
const EPOCH_TO_COME = 9_000_000_000_000_000;

/** The variables of an exchange. */
export type Variables = Record<string, string | number>;

/** An exchange, as far as this module looks at it. */
export interface Exchange {
  readonly name: string;
  readonly file: string;
  readonly scene: string;
  /** Abilities without which it is passed over. */
  readonly needs: readonly string[];
  // deno-lint-ignore no-explicit-any
  readonly steps: readonly any[];
}

/** Every exchange, by name. */
export function exchanges(): Exchange[] {
  return readdirSync(DIRECTORY).sort().map((base) => {
    const file = join(DIRECTORY, base);
    const { scene, needs = [], steps } = JSON.parse(readFileSync(file, "utf8"));
    return { name: base.replace(".json", ""), file, scene, needs, steps };
  });
}

/** The agents of all scenes. */
export class Scenes {
  readonly #stack = new AsyncDisposableStack();
  #shared!: NatsServer;
  #cut!: NatsServer;
  #alpha!: RealAgent;
  #beta!: RealAgent;
  #outage!: RealAgent;
  #contradicted!: RealAgent;
  #small!: RealAgent;
  #closed!: RealAgent;
  #count = 0;

  /** Starts them; takes some 6 s, because one must find its coordinator only when it is up. */
  static async start(): Promise<Scenes> {
    const scenes = new Scenes();
    try {
      await scenes.#start();
    } catch (error) {
      await scenes[Symbol.asyncDispose]();
      throw error;
    }
    return scenes;
  }

  /** The agent of the usual scene. */
  get usual(): RealAgent {
    return this.#alpha;
  }

  async #start(): Promise<void> {
    [this.#shared, this.#cut] = await Promise.all([this.#server(), this.#server()]);
    this.#outage = await this.#agent("cut-off", { nats: this.#cut.url, flags: TTL });
    const contradicted = this.#startContradicted();
    const address = (node: string) => [...TTL, "--address", `http://${node}.example`];
    const { url: nats } = this.#shared;
    this.#alpha = await this.#agent("alpha", { nats, flags: address("alpha") });
    this.#beta = await this.#agent("beta", { nats, flags: address("beta") });
    const small = ["--max-grants", "1", "--max-waiters", "1", "--max-connections", "3"];
    this.#small = await this.#agent("small", { flags: [...small, "--admin-uid", NOBODY] });
    this.#closed = await this.#agent("closed", { flags: ["--allow-uid", NOBODY] });
    this.#contradicted = await contradicted;
  }

  /** Refused at once with another TTL than the bucket's, unless that is seen too late for it. */
  async #startContradicted(): Promise<RealAgent> {
    this.#cut.freeze();
    const flags = ["--ttl", "7s"];
    const agent = await this.#agent("contradicted", { nats: this.#cut.url, flags });
    this.#cut.thaw();
    const client = await agent.client();
    await until("the contradiction is noticed", async () => {
      const { kind } = await refusal(client.call("guard", { store: "any" }));
      return kind === "misconfigured";
    });
    return agent;
  }

  async #server(): Promise<NatsServer> {
    const server = await NatsServer.start();
    this.#stack.defer(() => server.stop());
    return server;
  }

  async #agent(node: string, options: { nats?: string; flags: string[] }): Promise<RealAgent> {
    const agent = await RealAgent.start({ node, ...options });
    this.#stack.use(agent);
    return agent;
  }

  /** Writes the variables for one replay of all exchanges, none used before; returns the file. */
  async variablesIn(directory: string): Promise<string> {
    const run = `run-${++this.#count}`;
    this.#cut.thaw(); // should a replay have ended in the middle of an outage
    const all: Record<string, Variables> = {};
    for (const { name, scene } of exchanges()) {
      all[name] = await this.#variables(scene, `${run}/${name}`);
    }
    const path = join(directory, `${run}.json`);
    writeFileSync(path, JSON.stringify(all, null, 2));
    return path;
  }

  async #variables(scene: string, prefix: string): Promise<Variables> {
    const agent = this.#agentOf(scene);
    const names = { store: `${prefix}/store`, other: `${prefix}/other` };
    for (const store of Object.values(names)) agent.makeStore(store);
    const { socket, options: { node } } = agent;
    const own = { socket, node, missing: `${prefix}/missing`, ...names };
    switch (scene) {
      case "usual":
        return { ...own, ...await this.#foreign(prefix, this.#beta), stale: this.#stale(prefix) };
      case "takeover": {
        const node = `gamma-${this.#count}`;
        const flags = [...TTL, "--address", "http://gamma.example"];
        const gamma = await this.#agent(node, { nats: this.#shared.url, flags });
        return { ...own, ...await this.#foreign(prefix, gamma), holder_pid: gamma.pid };
      }
      case "outage":
        return { ...own, coordinator_pid: this.#cut.pid };
      default:
        return own;
    }
  }

  #agentOf(scene: string): RealAgent {
    const agent = {
      usual: this.#alpha,
      takeover: this.#alpha,
      outage: this.#outage,
      contradicted: this.#contradicted,
      small: this.#small,
      closed: this.#closed,
    }[scene];
    if (agent === undefined) throw new Error(`There is no scene ${scene}`);
    return agent;
  }

  /** A store that `holder` holds. */
  async #foreign(prefix: string, holder: RealAgent): Promise<Variables> {
    const foreign = `${prefix}/foreign`;
    this.#alpha.makeStore(foreign);
    const client = await holder.client();
    const isHeld = async () => (await client.call("held", { store: foreign })).held;
    await until(`${holder.options.node} holds it`, isHeld);
    const { node, flags } = holder.options;
    return { foreign, foreign_node: node, foreign_address: flags!.at(-1)! };
  }

  /** A store whose disk has seen an epoch that the coordinator has yet to reach. */
  #stale(prefix: string): string {
    const store = `${prefix}/stale`;
    const [node, incarnation] = ["elsewhere", "0"];
    const fence = { store, node, incarnation, epoch: EPOCH_TO_COME, pid: 1, at: "2255-01-01" };
    const path = join(this.#alpha.makeStore(store), "lease.lock");
    writeFileSync(path, `${JSON.stringify(fence)}\n`);
    return store;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
