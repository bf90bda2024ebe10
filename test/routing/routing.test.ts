/** A forge on two hosts: writes to either are made by the holder, once, over failovers. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { connect as connectSocket } from "node:net";
import { join } from "node:path";
import { freePort, NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const FRONT_END = join(import.meta.dir, "forge/front_end.ts");
const TTL_MS = 3_000;

let nats: NatsServer;
let directory: ReturnType<typeof tempDir>;
beforeAll(async () => {
  nats = await NatsServer.start();
  directory = tempDir();
});
afterAll(async () => {
  await nats.stop();
  directory[Symbol.dispose]();
});

/** An agent and its front end. */
class Host {
  readonly agent: RealAgent;
  readonly url: string;
  readonly #front: Bun.Subprocess;

  /**
   * `shared` is the file system that all hosts see. Locks are not on it: it is the lease alone that
   * keeps hosts apart.
   */
  static async start(node: string, shared: string): Promise<Host> {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const flags = ["--ttl", `${TTL_MS}ms`, "--address", url];
    const agent = await RealAgent.start({ node, nats: nats.url, flags });
    for (const store of readdirSync(shared)) agent.makeStore(store);
    const front = Bun.spawn([process.execPath, FRONT_END, agent.socket, shared, String(port)], {
      stdout: "pipe",
    });
    reap(front.pid);
    await front.stdout.getReader().read();
    return new Host(agent, url, front);
  }

  private constructor(agent: RealAgent, url: string, front: Bun.Subprocess) {
    this.agent = agent;
    this.url = url;
    this.#front = front;
  }

  /** The power goes: agent and front end at once. */
  async fail(): Promise<void> {
    this.#front.kill("SIGKILL");
    this.agent.signal("SIGKILL");
    await Promise.all([this.#front.exited, this.agent.exited()]);
    reaped(this.#front.pid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#front.kill("SIGKILL");
    await this.#front.exited;
    reaped(this.#front.pid);
    await this.agent[Symbol.asyncDispose]();
  }
}

/** How a write came to be. */
interface Made {
  readonly id: string;
  readonly at: number;
  /** The port of the front end that made it. */
  readonly by: number;
}

/** A client of the forge: asks one front end after the other until it has an answer. */
async function write(urls: readonly string[], store: string, id: string): Promise<Made> {
  for (let attempt = 0;; attempt++) {
    const url = urls[attempt % urls.length];
    try {
      const answer = await fetch(`${url}/${store}?id=${id}`, {
        method: "POST",
        body: `text of ${id}`,
        signal: AbortSignal.timeout(5_000),
      });
      if (answer.ok) return { id, ...await answer.json() };
      if (answer.status !== 503) throw new Error(`${id}: ${await answer.text()}`);
    } catch (error) {
      // No answer: the host is gone, or the connection is. Asked again, under the same id.
      if (error instanceof Error && error.message.startsWith(id)) throw error;
    }
    await Bun.sleep(50);
  }
}

/** The store's log has every write once, where its answer said. */
function expectOnce(shared: string, store: string, made: readonly Made[]): void {
  const lines = readFileSync(join(shared, store, "log"), "utf8").trimEnd().split("\n");
  expect(lines.length).toBe(made.length);
  expect(new Set(made.map(({ at }) => at)).size).toBe(made.length);
  for (const { id, at } of made) expect(lines[at]).toBe(`${id} text of ${id}`);
}

function makeShared(name: string, stores: readonly string[]): string {
  const shared = join(directory.path, name);
  for (const store of stores) mkdirSync(join(shared, store), { recursive: true });
  return shared;
}

describe("the forge", () => {
  test("sends each write to the holder's address, whichever host is asked", async () => {
    const shared = makeShared("routes", ["left", "right"]);
    await using alpha = await Host.start("alpha", shared);
    await using beta = await Host.start("beta", shared);
    // Each host holds one of the stores.
    const first = await write([alpha.url], "left", "first-left");
    const second = await write([beta.url], "right", "first-right");
    expect(first.by).not.toBe(second.by);
    const left = [first], right = [second];
    for (let i = 0; i < 10; i++) {
      for (const { url } of [alpha, beta]) {
        const id = `${i}-${url.at(-1)}-${url.length}${left.length}`;
        left.push(await write([url], "left", id));
        right.push(await write([url], "right", id));
      }
    }
    // Always by the holder: the other one passed them on, in one go.
    expect(new Set(left.map(({ by }) => by))).toEqual(new Set([first.by]));
    expect(new Set(right.map(({ by }) => by))).toEqual(new Set([second.by]));
    // Repeated, a write is answered and not made again.
    expect(await write([beta.url], "left", left[3].id)).toEqual(left[3]);
    expectOnce(shared, "left", left);
    expectOnce(shared, "right", right);
  });

  test("makes a write once whose answer never came, and one after a host that failed while it wrote", async () => {
    const shared = makeShared("lost-reply", ["project"]);
    const log = join(shared, "project/log");
    const lines = () => existsSync(log) ? readFileSync(log, "utf8").split("\n").length - 1 : 0;
    await using alpha = await Host.start("alpha-3", shared);
    await using beta = await Host.start("beta-3", shared);
    const made = [await write([alpha.url], "project", "first")];
    for (const { url } of [alpha, beta]) {
      // Sends the write, and is gone when it is made: nobody hears the answer.
      const id = `unheard-${new URL(url).port}`;
      const before = lines();
      const socket = connectSocket(Number(new URL(url).port), "127.0.0.1");
      const body = `text of ${id}`;
      socket.write(
        `POST /project?id=${id} HTTP/1.1\r\nHost: forge\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      await until("it is made", () => lines() > before);
      socket.resetAndDestroy();
      // Asked again, at either host: there it is.
      made.push(await write([beta.url], "project", id));
      expect(await write([alpha.url], "project", id)).toMatchObject({ at: made.at(-1)!.at });
    }
    // What a host leaves whose power goes in the middle of a write.
    appendFileSync(log, "torn text of to");
    made.push(await write([beta.url], "project", "torn"));
    expectOnce(shared, "project", made);
  });

  test(
    "loses and doubles no write when the holder fails, hands over, or loses its coordinator",
    async () => {
      const shared = makeShared("failover", ["project"]);
      const alpha = await Host.start("alpha-2", shared);
      await using beta = await Host.start("beta-2", shared);
      const urls = [alpha.url, beta.url];
      const made: Made[] = [await write([alpha.url], "project", "first")];
      let stop = false;
      let count = 0;
      const writers = urls.map((_, w) =>
        (async () => {
          const order = [...urls.slice(w), ...urls.slice(0, w)];
          while (!stop) made.push(await write(order, "project", `w${w}-${count++}`));
        })()
      );
      // So many writes by that host are more than the one that was on its way.
      const writtenBy = async (by: string, from: number) => {
        const its = () => made.slice(from).filter((each) => by.endsWith(`:${each.by}`));
        while (its().length < 5) await Bun.sleep(10);
      };
      await writtenBy(alpha.url, 1);
      // A clean hand-over, then back, each while writes are on their way.
      const steps = await alpha.agent.client();
      await steps.call("stepdown", { store: "project", for_ms: 500 });
      await writtenBy(beta.url, made.length);
      const back = await beta.agent.client();
      await back.call("stepdown", { store: "project", for_ms: 500 });
      await writtenBy(alpha.url, made.length);
      // The holder's power goes: beta takes over after TTL and grace.
      await alpha.fail();
      await writtenBy(beta.url, made.length);
      // The coordinator hangs for longer than a TTL: nobody may write, and then beta again.
      nats.freeze();
      await beta.agent.logged("lost", { store: "project" });
      nats.thaw();
      await writtenBy(beta.url, made.length);
      stop = true;
      await Promise.all(writers);
      expect(made.length).toBeGreaterThan(25);
      expect(new Set(made.map(({ by }) => by)).size).toBe(2);
      expectOnce(shared, "project", made);
      // The checker sees a write that is not in the log, and one that is there twice.
      expect(() => expectOnce(shared, "project", made.slice(1))).toThrow();
      appendFileSync(join(shared, "project/log"), `${made[1].id} text of ${made[1].id}\n`);
      expect(() => expectOnce(shared, "project", made)).toThrow();
      await alpha.agent[Symbol.asyncDispose]();
    },
    90_000,
  );
});
