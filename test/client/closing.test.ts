/** Whatever ends a client, or its process: what writes under its grants has ended before others write. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { connect as connectSocket, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import {
  AgentUnreachable,
  type Client,
  connect,
  LostError,
  type Token,
  ZitCli,
} from "../../src/client/mod.ts";
import { freezeProcess } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";
import { isRunning, pidIn } from "../support/running.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;
/** More than a very busy machine takes; nothing here is meant to be that long. */
const PATIENCE_MS = 60_000;

let nats: NatsServer;
let alpha: RealAgent;
let beta: RealAgent;
let directory: ReturnType<typeof tempDir>;
let count = 0;

beforeAll(async () => {
  nats = await NatsServer.start();
  const start = (node: string) =>
    RealAgent.start({ node, nats: nats.url, flags: ["--ttl", "5s", "--drain", "1s"] });
  [alpha, beta] = await Promise.all([start("alpha"), start("beta")]);
  directory = tempDir();
}, PATIENCE_MS);
afterAll(async () => {
  await Promise.all([alpha, beta].map((host) => host[Symbol.asyncDispose]()));
  await nats[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

/** A store of its own: what happens to one does not touch the next test. */
function newStore(): string {
  const store = `store-${++count}`;
  for (const host of [alpha, beta]) host.makeStore(store);
  return store;
}

/** A program that does not heed SIGTERM, and tells its number when it is that far. */
function stubborn(file: string): string {
  return `trap '' TERM; echo $$ >${file}.new; mv ${file}.new ${file}; while :; do sleep 0.05; done`;
}

function shell(killAfterMs: number): ZitCli {
  return new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"], killAfterMs });
}

async function startedIn(file: string): Promise<number> {
  const pid = await pidIn(file);
  reap(pid);
  return pid;
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then((value) => {
    throw new Error(`not rejected: ${JSON.stringify(value)}`);
  }, (error) => error);
}

/** A write by `client` that runs; it ends only by force. */
async function running(client: Client, store: string, passLock?: false, killAfterMs = 300) {
  const file = join(directory.path, `pid-${++count}`);
  const options = { waitMs: PATIENCE_MS, ...(passLock === undefined ? {} : { passLock }) };
  const end = failure(
    client.guard(
      store,
      options,
      (token) => shell(killAfterMs).write(token, store, [stubborn(file)]),
    ),
  );
  return { end, pid: await startedIn(file) };
}

describe("close() while write() runs", () => {
  test.each([["with the lock passed", undefined], ["with passLock: false", false as const]])(
    "has ended the program before the next guard of the host begins: %s",
    async (_how, passLock) => {
      const store = newStore();
      const client = await connect({ socket: alpha.socket, passLock: AGENT });
      await using other = await connect({ socket: alpha.socket });
      const { end, pid } = await running(client, store, passLock);
      const next = other.guard(store, { waitMs: PATIENCE_MS }, () => isRunning(pid));
      expect(isRunning(pid)).toBe(true);
      await client.close();
      expect(isRunning(pid)).toBe(false);
      expect(await end).toBeInstanceOf(LostError);
      expect(String(await end)).toContain("this client was closed");
      expect(await next).toBe(false);
    },
    PATIENCE_MS,
  );

  test("has ended the program before another host is granted", async () => {
    const store = newStore();
    const client = await connect({ socket: alpha.socket, passLock: false });
    await using admin = await connect({ socket: alpha.socket });
    await using other = await connect({ socket: beta.socket });
    const { end, pid } = await running(client, store);
    const wait = { waitMs: PATIENCE_MS, waitLease: true };
    const next = other.guard(store, wait, () => isRunning(pid));
    const closing = client.close();
    await admin.stepdown({ store });
    await closing;
    expect(await end).toBeInstanceOf(LostError);
    expect(await next).toBe(false);
  }, PATIENCE_MS);

  test(
    "waits for a write in this process that heeds its signal late, and refuses its token",
    async () => {
      const store = newStore();
      const client = await connect({ socket: alpha.socket });
      await using other = await connect({ socket: alpha.socket });
      const order: string[] = [];
      const begun = Promise.withResolvers<Token>();
      const go = Promise.withResolvers<void>();
      const end = failure(client.guard(store, { waitMs: PATIENCE_MS }, async (token) => {
        begun.resolve(token);
        await go.promise;
        order.push("written");
      }));
      const token = await begun.promise;
      const next = other.guard(store, { waitMs: PATIENCE_MS }, () => void order.push("next"));
      const closing = client.close();
      expect(token.signal.aborted).toBe(true);
      expect(token.live).toBe(false);
      expect(await failure(token.verify())).toBeInstanceOf(LostError);
      // No use in trying again.
      expect(await failure(client.guard(store, {}, () => {}))).toMatchObject({
        kind: "invalid",
        retryable: false,
      });
      await other.held(store); // a round trip on which the next would have been granted
      expect(order).toEqual([]);
      go.resolve();
      await closing;
      expect(await end).toBeInstanceOf(LostError);
      await next;
      expect(order).toEqual(["written", "next"]);
    },
    PATIENCE_MS,
  );

  test("comes to an end within the deadline when a write waits for it", async () => {
    await using host = await RealAgent.start({ node: "self", flags: ["--ttl", "1s"] });
    host.makeStore("one");
    const client = await connect({ socket: host.socket });
    let closed = false;
    const end = await failure(client.guard("one", {}, async () => {
      await client.close();
      closed = true;
    }));
    expect(closed).toBe(true);
    expect(end).toBeInstanceOf(LostError);
  }, PATIENCE_MS);

  test("does not wait for an agent that hangs", async () => {
    await using host = await RealAgent.start({ node: "hangs", flags: ["--ttl", "1h"] });
    host.makeStore("one");
    const client = await connect({ socket: host.socket, passLock: AGENT });
    const { end, pid } = await running(client, "one");
    freezeProcess(host.pid);
    try {
      await client.close();
      expect(isRunning(pid)).toBe(false);
      expect(await end).toBeInstanceOf(LostError);
    } finally {
      host.signal("SIGCONT");
    }
  }, PATIENCE_MS);

  test("rejects guards that wait, and nothing is granted to them afterwards", async () => {
    const store = newStore();
    const client = await connect({ socket: alpha.socket, passLock: AGENT });
    const { end } = await running(client, store);
    let ran = false;
    const waiting = failure(client.guard(store, { waitMs: PATIENCE_MS }, () => void (ran = true)));
    await client.held(store);
    await client.close();
    expect(await waiting).toBeInstanceOf(AgentUnreachable);
    expect(await end).toBeInstanceOf(LostError);
    expect(ran).toBe(false);
  }, PATIENCE_MS);
});

/** A way to the agent's socket on which a test can say something of its own to the client. */
async function interfering(socket: string) {
  const path = join(directory.path, `proxy-${++count}`);
  const clients: Socket[] = [];
  const server: Server = createServer((client) => {
    clients.push(client);
    const agent = connectSocket(socket);
    client.pipe(agent).pipe(client);
    for (const each of [client, agent]) each.on("error", () => {});
    client.on("close", () => agent.destroy());
    agent.on("close", () => client.destroy());
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return {
    path,
    say: (text: string) => clients.at(-1)!.write(text),
    [Symbol.dispose]: () => {
      for (const client of clients) client.destroy();
      server.close();
    },
  };
}

describe("a connection that the client gives up by itself", () => {
  test.each([
    ["what comes is not JSON", "nonsense\n"],
    ["what comes is no object", "7\n"],
    ["it is told that it may not stay", `{"id":null,"error":{"code":-32010,"message":"no"}}\n`],
  ])("is closed when the program has ended: %s", async (_why, text) => {
    const store = newStore();
    using proxy = await interfering(alpha.socket);
    await using client = await connect({ socket: proxy.path, passLock: false });
    await using other = await connect({ socket: alpha.socket });
    const { end, pid } = await running(client, store);
    const next = other.guard(store, { waitMs: PATIENCE_MS }, () => isRunning(pid));
    proxy.say(text);
    expect(await end).toBeInstanceOf(LostError);
    expect(await next).toBe(false);
    // The next question goes on a new one.
    expect(await client.held(store)).toBe(true);
  }, PATIENCE_MS);

  test("is closed before close() resolves, though it is not the newest one", async () => {
    const store = newStore();
    using proxy = await interfering(alpha.socket);
    const client = await connect({ socket: proxy.path, passLock: false });
    // It is killed at the deadline, nearly a TTL away: until then the next question is answered.
    const { end, pid } = await running(client, store, undefined, PATIENCE_MS);
    proxy.say("nonsense\n");
    await until("it is given up", async () => await client.held(store).catch(() => false));
    expect(isRunning(pid)).toBe(true);
    await client.close();
    expect(isRunning(pid)).toBe(false);
    expect(await end).toBeInstanceOf(LostError);
  }, PATIENCE_MS);
});

/** A process that guards a write of a program which ends only by force, and its watchdog. */
async function caller(store: string, passLock: string | false) {
  const file = join(directory.path, `pid-${++count}`);
  const program = `
    import { connect, ZitCli } from ${JSON.stringify(MODULE)};
    const agent = await connect(${JSON.stringify({ socket: alpha.socket, passLock })});
    const shell = new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"] });
    await agent.guard("${store}", { waitMs: ${PATIENCE_MS} }, (token) =>
      shell.write(token, "${store}", [${JSON.stringify(stubborn(file))}]));
  `;
  const child = Bun.spawn([process.execPath, "-e", program], { stdin: "ignore" });
  reap(child.pid);
  const pid = await startedIn(file);
  const watchdog = readdirSync("/proc").filter((each) => /^\d+$/.test(each)).map(Number).find(
    (each) => each !== pid && parentOf(each) === child.pid,
  )!;
  reap(watchdog);
  return { child, pid, watchdog };
}

function parentOf(pid: number): number {
  try {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  } catch {
    return 0;
  }
}

describe("the end of the process that runs the guard", () => {
  // The watchdog kills the program. It and the agent hear of the end at once, and either may be first:
  // here it stands still, so it is the agent.
  test("does not let the next guard of the host begin before the program has ended", async () => {
    const store = newStore();
    await using other = await connect({ socket: alpha.socket });
    const { child, pid, watchdog } = await caller(store, AGENT);
    freezeProcess(watchdog);
    child.kill("SIGKILL");
    await child.exited;
    const busy = await failure(other.guard(store, { waitMs: 300 }, () => {}));
    expect(busy).toMatchObject({ kind: "busy" });
    expect(isRunning(pid)).toBe(true);
    const next = other.guard(store, { waitMs: PATIENCE_MS }, () => isRunning(pid));
    process.kill(watchdog, "SIGCONT");
    expect(await next).toBe(false);
  }, PATIENCE_MS);

  test("does not let another host be granted before the program has ended", async () => {
    const store = newStore();
    await using admin = await connect({ socket: alpha.socket });
    await using other = await connect({ socket: beta.socket });
    const { child, pid, watchdog } = await caller(store, AGENT);
    freezeProcess(watchdog);
    child.kill("SIGKILL");
    await child.exited;
    expect(await admin.stepdown({ store })).toMatchObject({ released: 0, remaining: 1 });
    expect(await failure(other.guard(store, { waitMs: 0 }, () => {})))
      .toMatchObject({ kind: "not_holder" });
    expect(isRunning(pid)).toBe(true);
    const wait = { waitMs: PATIENCE_MS, waitLease: true };
    const next = other.guard(store, wait, () => isRunning(pid));
    process.kill(watchdog, "SIGCONT");
    expect(await next).toBe(false);
  }, PATIENCE_MS);

  test(
    "with passLock: false lets the next guard begin beside it: the price of the option",
    async () => {
      const store = newStore();
      await using other = await connect({ socket: alpha.socket });
      const { child, pid, watchdog } = await caller(store, false);
      freezeProcess(watchdog);
      child.kill("SIGKILL");
      await child.exited;
      expect(await other.guard(store, { waitMs: PATIENCE_MS }, () => isRunning(pid))).toBe(true);
      process.kill(watchdog, "SIGCONT");
      await until("it is killed", () => !isRunning(pid));
    },
    PATIENCE_MS,
  );
});
