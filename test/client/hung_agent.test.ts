/** An agent that stands still keeps its connections open and says nothing: nobody waits for it for ever. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import {
  type AgentError,
  AgentUnreachable,
  type Client,
  connect,
  LostError,
  requireToken,
  type Token,
  UnavailableError,
  ZitCli,
} from "../../src/client/mod.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { freezeProcess } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent } from "../support/real_agent.ts";
import { isRunning } from "../support/running.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 3_000;
/** No wait here is meant to be longer than a TTL; this is for a machine that is very busy. */
const PATIENCE_MS = 60_000;

let nats: NatsServer;
beforeAll(async () => void (nats = await NatsServer.start()));
afterAll(() => nats.stop());

let host: RealAgent;
let agent: Client;
let count = 0;
beforeEach(async () => {
  const flags = ["--ttl", `${TTL_MS}ms`];
  host = await RealAgent.start({ node: `hung-${++count}`, nats: nats.url, flags });
  host.makeStore(store());
  agent = await connect({ socket: host.socket, passLock: AGENT });
});
afterEach(async () => {
  host.signal("SIGCONT");
  await agent.close();
  await host[Symbol.asyncDispose]();
});

/** A store of each test's own: no test waits for the lease of the one before. */
function store(): string {
  return `store-${count}`;
}

/** A guard of this test's store that has its grant. */
function guard<T>(write: (token: Token) => Promise<T>, signal?: AbortSignal): Promise<T> {
  return agent.guard(store(), { waitMs: 10_000, signal }, write);
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then((value) => {
    throw new Error(`not rejected: ${JSON.stringify(value)}`);
  }, (error) => error);
}

function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    else signal.addEventListener("abort", () => resolve(signal.reason), { once: true });
  });
}

describe("while the agent stands still", () => {
  test(
    "the token's signal aborts a third of the TTL before the deadline, and it is refused from that on",
    async () => {
      const error = await failure(guard(async (token) => {
        await token.verify();
        freezeProcess(host.pid);
        const reason = await aborted(token.signal);
        expect(reason).toBeInstanceOf(LostError);
        expect((reason as Error).message).toContain("the agent may hang");
        // A third of the TTL before the deadline, less what a busy machine takes.
        expect(token.remainingMs).toBeLessThanOrEqual(TTL_MS / 3);
        expect(token.remainingMs).toBeGreaterThan(0);
        requireToken(token, store());
        await until("the deadline", () => !token.live);
        expect(() => requireToken(token, store())).toThrow(LostError);
        return "too late";
      }));
      // It resolved, and yet: nobody may take this write for made.
      expect(error).toBeInstanceOf(LostError);
      expect((error as Error).message).toContain("its deadline has passed");
    },
    PATIENCE_MS,
  );

  test(
    "the token's signal does not abort because this process was busy when renewals came",
    async () => {
      await guard(async (token) => {
        await token.verify();
        // No message is read meanwhile, so the last deadline that is known has drawn near.
        const busyUntilMs = bootTimeMs() + token.remainingMs - TTL_MS * 0.3;
        while (bootTimeMs() < busyUntilMs);
        await until("a renewal was read", () => token.remainingMs > TTL_MS / 3);
        expect(token.signal.aborted).toBe(false);
        await token.verify();
      });
    },
    PATIENCE_MS,
  );

  test("verify() throws LostError at the deadline (kubernetes#65094)", async () => {
    const error = await failure(guard(async (token) => {
      await token.verify();
      freezeProcess(host.pid);
      const refused = await failure(token.verify());
      expect(refused).toBeInstanceOf(LostError);
      expect(token.remainingMs).toBe(0);
      throw refused;
    }));
    expect(error).toBeInstanceOf(LostError);
  }, PATIENCE_MS);

  test("verify() throws what its signal aborts with, or the guard's", async () => {
    const [own, outer] = [new AbortController(), new AbortController()];
    const error = await failure(guard(async (token) => {
      freezeProcess(host.pid);
      const first = failure(token.verify({ signal: own.signal }));
      own.abort(new Error("own"));
      expect(await first).toMatchObject({ message: "own" });
      expect(token.live).toBe(true);
      const second = token.verify();
      outer.abort(new Error("outer"));
      await second;
    }, outer.signal));
    expect(error).toMatchObject({ message: "outer" });
  }, PATIENCE_MS);

  test("write() throws LostError before the deadline, and runs nothing", async () => {
    const shell = new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"] });
    const marker = join(host.dir, "written");
    const error = await failure(guard(async (token) => {
      await token.verify();
      freezeProcess(host.pid);
      await shell.write(token, store(), [`touch ${marker}`]);
    }));
    expect(error).toBeInstanceOf(LostError);
    expect(existsSync(marker)).toBe(false);
  }, PATIENCE_MS);

  test(
    "what write() runs is asked to end before the deadline, and killed at the deadline",
    async () => {
      const shell = new ZitCli({
        executable: "/bin/sh",
        prefix: () => ["-c"],
        killAfterMs: 60_000,
      });
      const [pids, asked] = [join(host.dir, "pids"), join(host.dir, "asked")];
      const script = `trap 'echo >${asked}' TERM; sleep 60 & echo $$ $! >${pids}.new; ` +
        `mv ${pids}.new ${pids}; wait; wait; while :; do sleep 60; done`;
      const error = await failure(guard(async (token) => {
        const run = failure(shell.write(token, store(), [script]));
        await until("it runs", () => existsSync(pids));
        await token.verify();
        freezeProcess(host.pid);
        const deadlineMs = bootTimeMs() + token.remainingMs;
        await aborted(token.signal);
        await until("it is asked to end", () => existsSync(asked));
        const killed = await run;
        expect(killed).toBeInstanceOf(LostError);
        // It is not held up until killAfterMs.
        expect(bootTimeMs()).toBeLessThan(deadlineMs + 20_000);
        expect(readFileSync(pids, "utf8").trim().split(" ").map(Number).filter(isRunning)).toEqual(
          [],
        );
        throw killed;
      }));
      expect(error).toBeInstanceOf(LostError);
    },
    PATIENCE_MS,
  );

  test(
    "guard() does not wait for its release beyond the deadline, and the agent still gets it",
    async () => {
      expect(
        await guard((token) => {
          requireToken(token, store());
          freezeProcess(host.pid);
          return Promise.resolve("written in time");
        }),
      ).toBe("written in time");
      host.signal("SIGCONT");
      // On the same connection: nobody closed it.
      await until("it is released", async () => (await agent.status()).counts.grants === 0);
    },
    PATIENCE_MS,
  );

  test("guard() does not wait for its release once its signal aborted", async () => {
    const control = new AbortController();
    const startMs = bootTimeMs();
    let remainingMs = 0;
    const guarded = guard(async (token) => {
      await token.verify();
      freezeProcess(host.pid);
      remainingMs = token.remainingMs;
      setTimeout(() => control.abort(new Error("enough")), 1);
      await aborted(token.signal);
      throw token.signal.reason;
    }, control.signal);
    expect(await failure(guarded)).toMatchObject({ message: "enough" });
    expect(remainingMs).toBeGreaterThan(0);
    expect(bootTimeMs() - startMs).toBeLessThan(PATIENCE_MS / 2);
  }, PATIENCE_MS);

  test(
    "a guard that waits throws what its signal aborts with, and else that the agent is silent",
    async () => {
      freezeProcess(host.pid);
      const control = new AbortController();
      const first = failure(
        agent.guard(store(), { waitMs: 3_600_000, signal: control.signal }, () => {}),
      );
      control.abort(new Error("enough"));
      expect(await first).toMatchObject({ message: "enough" });
      const silent = await failure(agent.guard(store(), {}, () => {}));
      expect(silent).toBeInstanceOf(AgentUnreachable);
      expect(silent).toMatchObject({ retryable: true, unknown: true });
    },
    PATIENCE_MS,
  );

  test("questions are given up in time, with a typed error, and by their signals", async () => {
    freezeProcess(host.pid);
    const timeoutMs = 50;
    const ask: Record<
      string,
      (options: { timeoutMs?: number; signal?: AbortSignal }) => Promise<unknown>
    > = {
      held: (options) => agent.held(store(), options),
      heldMany: (options) => agent.held([store(), "another"], options),
      holder: (options) => agent.holder(store(), options),
      status: (options) => agent.status(options),
      history: (options) => agent.history(store(), options),
      leases: (options) => agent.leases(undefined, options).next(),
      stepdown: (options) => agent.stepdown({ all: true }, options),
    };
    for (const [name, question] of Object.entries(ask)) {
      const error = await failure(question({ timeoutMs }));
      expect(error, name).toBeInstanceOf(UnavailableError);
      expect(error, name).toMatchObject({ kind: "unavailable", retryable: true, unknown: true });
      expect((error as Error).message, name).toContain(`within ${timeoutMs} ms: it hangs`);
      const control = new AbortController();
      const given = failure(question({ signal: control.signal }));
      control.abort(new Error(`no ${name}`));
      expect(await given, name).toMatchObject({ message: `no ${name}` });
    }
  }, PATIENCE_MS);
});

test("a connection that ends in the middle of verify() is a loss", async () => {
  const error = await failure(guard(async (token) => {
    freezeProcess(host.pid);
    const verified = failure(token.verify());
    host.signal("SIGKILL");
    const refused = await verified;
    expect(["lost", "unavailable"]).toContain((refused as AgentError).kind);
    await until("it is known", () => !token.live);
    throw refused;
  }));
  expect(["lost", "unavailable"]).toContain((error as AgentError).kind);
}, PATIENCE_MS);
