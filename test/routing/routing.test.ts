/** A forge on two hosts: writes to either are made by the holder, once, over failovers. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { appendFileSync, mkdirSync, readdirSync } from "node:fs";
import { connect as connectSocket } from "node:net";
import { join } from "node:path";
import { bun } from "../support/child.ts";
import { freezeProcess } from "../support/freeze.ts";
import { freePort, NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";
import { readLog } from "./forge/log.ts";

const FRONT_END = join(import.meta.dir, "forge/front_end.ts");
const LATE_WRITER = join(import.meta.dir, "support/late_writer.ts");
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

/** The store's log has every write once, where its answer said, and nothing else. */
function expectOnce(shared: string, store: string, made: readonly Made[]): void {
  const texts = readLog(join(shared, store, "log"))
    .map(({ id, body }) => `${id}: ${Buffer.from(body).toString()}`);
  const answered: string[] = [];
  for (const { id, at } of made) {
    expect(answered[at]).toBeUndefined();
    answered[at] = `${id}: text of ${id}`;
  }
  expect(texts).toEqual(answered);
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

  // Each with a store of its own: nobody waits for what the last one's hosts held.
  test("makes a write once whose answer never came, and one after a host that failed while it wrote", async () => {
    const shared = makeShared("lost-reply", ["heard"]);
    const log = join(shared, "heard/log");
    await using alpha = await Host.start("alpha-3", shared);
    await using beta = await Host.start("beta-3", shared);
    const made = [await write([alpha.url], "heard", "first")];
    for (const { url } of [alpha, beta]) {
      // Sends the write, and is gone when it is made: nobody hears the answer.
      const id = `unheard-${new URL(url).port}`;
      const socket = connectSocket(Number(new URL(url).port), "127.0.0.1");
      const body = `text of ${id}`;
      socket.write(
        `POST /heard?id=${id} HTTP/1.1\r\nHost: forge\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      await until("it is made", () => readLog(log).some((entry) => entry.id === id));
      socket.resetAndDestroy();
      // Asked again, at either host: there it is.
      made.push(await write([beta.url], "heard", id));
      expect(await write([alpha.url], "heard", id)).toMatchObject({ at: made.at(-1)!.at });
    }
    // What a host leaves whose power goes in the middle of a write.
    appendFileSync(log, "\n0123 1 torn dGV4dCBv");
    made.push(await write([beta.url], "heard", "torn"));
    expectOnce(shared, "heard", made);
  });

  test(
    "loses and doubles no write of a writer that stands still in the middle of it past a failover",
    async () => {
      const shared = makeShared("late", ["late"]);
      const log = join(shared, "late/log");
      await using alpha = await Host.start("alpha-4", shared);
      await using beta = await Host.start("beta-4", shared);
      const made = [await write([alpha.url], "late", "first")];
      await using late = bun(LATE_WRITER, [
        ...[alpha.agent.socket, "late", log, "late", "text of late"],
      ]);
      expect(await late.line()).toBe("verified");
      // The whole host stands still: the agent, and the writer that has just verified.
      for (const pid of [alpha.agent.pid, late.pid]) freezeProcess(pid);
      // Its client has no answer, and asks the other host, as others do.
      for (const id of ["second", "late", "third"]) {
        made.push(await write([beta.url], "late", id));
      }
      for (const pid of [alpha.agent.pid, late.pid]) process.kill(pid, "SIGCONT");
      late.say("go on");
      // It wrote, and was told where the write of its id stands: the one that counts.
      expect(await late.line()).toBe(`at ${made[2].at}`);
      expectOnce(shared, "late", made);

      // The same once more, and now its client never asks anybody else.
      const steps = await beta.agent.client();
      await steps.call("stepdown", { store: "late", for_ms: 2 * TTL_MS });
      made.push(await write([alpha.url], "late", "fourth"));
      await using lost = bun(LATE_WRITER, [
        ...[alpha.agent.socket, "late", log, "lost", "text of lost"],
      ]);
      expect(await lost.line()).toBe("verified");
      for (const pid of [alpha.agent.pid, lost.pid]) freezeProcess(pid);
      made.push(await write([beta.url], "late", "fifth"));
      for (const pid of [alpha.agent.pid, lost.pid]) process.kill(pid, "SIGCONT");
      lost.say("go on");
      // It wrote behind another's write: it is told so, and nobody sees what it wrote.
      expect(["LogError", "LostError"]).toContain(await lost.line());
      expectOnce(shared, "late", made);
      made.push(await write([alpha.url], "late", "lost"));
      expectOnce(shared, "late", made);
    },
    90_000,
  );

  test("keeps every body as it is, and refuses what it cannot keep", async () => {
    const shared = makeShared("bodies", ["bodies"]);
    await using alpha = await Host.start("alpha-5", shared);
    await using beta = await Host.start("beta-5", shared);
    await write([alpha.url], "bodies", "first");
    const post = async (
      query: string,
      body: string | Uint8Array<ArrayBuffer>,
      store = "bodies",
    ) => {
      while (true) {
        const answer = await fetch(`${beta.url}/${store}${query}`, { method: "POST", body });
        if (answer.status !== 503) return { status: answer.status, text: await answer.text() };
      }
    };
    // Passed on by the one, written by the other: neither touches a byte.
    const bodies = [
      "",
      "\n",
      "a\nid text\n",
      "\ufeffBOM",
      " ",
      new Uint8Array([0, 255, 10, 13, 128]),
    ];
    for (const [i, body] of bodies.entries()) {
      const { status } = await post(`?id=body-${i}`, body);
      expect(status).toBe(200);
      const there = await fetch(`${alpha.url}/bodies?id=body-${i}`).then((answer) =>
        answer.bytes()
      );
      expect(there).toEqual(typeof body === "string" ? new TextEncoder().encode(body) : body);
    }
    const ids = ["", "?id=", "?id=a%20b", "?id=a%0Ab", "?id=a+b", "?id=%C3%A4", "?id=a&id=b"];
    for (const query of [...ids, `?id=${"x".repeat(65)}`]) {
      const { status, text } = await post(query, "text");
      expect([query, status]).toEqual([query, 400]);
      expect(text).toMatch(/\bid\b/);
    }
    for (
      const store of ["", "-x", "a%20b", "%2e%2e%2fproject", "a//b", "project/", "a".repeat(129)]
    ) {
      const { status, text } = await post("?id=x", "text", store);
      expect([store, status]).toEqual([store, 400]);
      expect(text).toContain("store code");
    }
    expect((await post("?id=x", "text", "nowhere")).status).toBe(404);
    expect((await post("?id=first", "another text")).status).toBe(409);
    expect((await fetch(`${alpha.url}/bodies?id=nothing`)).status).toBe(404);
    expect((await fetch(`${alpha.url}/bodies`, { method: "PUT" })).status).toBe(405);
    // A body that ends before its length.
    const socket = connectSocket({ port: Number(new URL(alpha.url).port), host: "127.0.0.1" });
    socket.end("POST /bodies?id=short HTTP/1.1\r\nHost: forge\r\nContent-Length: 9\r\n\r\ntext");
    await new Promise((resolve) => socket.on("close", resolve).on("error", resolve).resume());
    const list = await fetch(`${beta.url}/bodies`).then((answer) => answer.text());
    expect(list).toBe(`${["first", ...bodies.map((_, i) => `body-${i}`)].join("\n")}\n`);
  });

  test(
    "loses and doubles no write when the holder fails, hands over, or loses its coordinator",
    async () => {
      const shared = makeShared("failover", ["moved"]);
      const alpha = await Host.start("alpha-2", shared);
      await using beta = await Host.start("beta-2", shared);
      const urls = [alpha.url, beta.url];
      const made: Made[] = [await write([alpha.url], "moved", "first")];
      let stop = false;
      let count = 0;
      const writers = urls.map((_, w) =>
        (async () => {
          const order = [...urls.slice(w), ...urls.slice(0, w)];
          while (!stop) made.push(await write(order, "moved", `w${w}-${count++}`));
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
      await steps.call("stepdown", { store: "moved", for_ms: 500 });
      await writtenBy(beta.url, made.length);
      const back = await beta.agent.client();
      await back.call("stepdown", { store: "moved", for_ms: 500 });
      await writtenBy(alpha.url, made.length);
      // The holder's power goes: beta takes over after TTL and grace.
      await alpha.fail();
      await writtenBy(beta.url, made.length);
      // The coordinator hangs for longer than a TTL: nobody may write, and then beta again.
      nats.freeze();
      await beta.agent.logged("lost", { store: "moved" });
      nats.thaw();
      await writtenBy(beta.url, made.length);
      stop = true;
      await Promise.all(writers);
      expect(made.length).toBeGreaterThan(25);
      expect(new Set(made.map(({ by }) => by)).size).toBe(2);
      expectOnce(shared, "moved", made);
      // The checker sees a write that was not answered, one answered twice, and one that is not there.
      expect(() => expectOnce(shared, "moved", made.slice(1))).toThrow();
      expect(() => expectOnce(shared, "moved", [...made, made[1]])).toThrow();
      expect(() => expectOnce(shared, "moved", [...made, { ...made[1], at: made.length }]))
        .toThrow();
      await alpha.agent[Symbol.asyncDispose]();
    },
    90_000,
  );
});
