import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  AgentError,
  BusyError,
  connect,
  InvalidError,
  LostError,
  NotHolderError,
  NoTokenError,
  requireToken,
  type Token,
  UnavailableError,
  unguarded,
  unguardedUses,
} from "../../src/client/mod.ts";
import { readFileSync } from "node:fs";
import { BootClock } from "../../src/client/clock.ts";
import { Grants } from "../../src/client/grants.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;

let alone: RealAgent;
beforeAll(async () => {
  alone = await RealAgent.start({ node: "alone" });
  for (const store of ["one", "two"]) alone.makeStore(store);
});
afterAll(() => alone[Symbol.asyncDispose]());

function statusOf(pid: number): string {
  return readFileSync(`/proc/${pid}/status`, "utf8");
}

/** What a promise is rejected with. */
async function failure(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("not rejected");
}

/** Resolves with the reason of the abort. */
function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    else signal.addEventListener("abort", () => resolve(signal.reason));
  });
}

describe("guard()", () => {
  test("gives a token while the write runs, and none afterwards", async () => {
    await using agent = await connect({ socket: alone.socket });
    let kept: Token | undefined;
    const result = await agent.guard("one", {}, async (token) => {
      kept = token;
      expect(token.store).toBe("one");
      expect(token.node).toBe("alone");
      expect(token.epoch).toBeGreaterThan(0);
      expect(token.unguarded).toBe("a test");
      expect(token.live).toBe(true);
      expect(token.remainingMs).toBeGreaterThan(0);
      requireToken(token, "one");
      await token.verify();
      return "written";
    });
    expect(result).toBe("written");
    expect(kept!.live).toBe(false);
    expect(kept!.remainingMs).toBe(0);
    expect(kept!.signal.aborted).toBe(true);
    expect(() => requireToken(kept!, "one")).toThrow(NoTokenError);
    expect(await failure(kept!.verify())).toBeInstanceOf(NoTokenError);
    // The agent knows, too: the store is free again.
    await agent.guard("one", {}, () => {});
  });

  test("throws what the write threw, and ends the grant", async () => {
    await using agent = await connect({ socket: alone.socket });
    const mine = new Error("mine");
    expect(await failure(agent.guard("one", {}, () => Promise.reject(mine)))).toBe(mine);
    await agent.guard("one", {}, () => {});
  });

  test("throws typed errors that tell whether another try makes sense", async () => {
    await using agent = await connect({ socket: alone.socket });
    await agent.guard("one", {}, async () => {
      const busy = await failure(agent.guard("one", { purpose: "second" }, () => {}));
      expect(busy).toBeInstanceOf(BusyError);
      expect(busy).toMatchObject({ kind: "busy", retryable: true, holder: null });
    });
    const unknown = await failure(agent.guard("nowhere", {}, () => {}));
    expect(unknown).toMatchObject({ kind: "unknown_store", retryable: false, exit: 66 });
    expect(await failure(agent.guard("../x", {}, () => {}))).toBeInstanceOf(InvalidError);
  });

  test("waits for its turn, and gives the wait up when its signal aborts", async () => {
    await using agent = await connect({ socket: alone.socket });
    const control = new AbortController();
    await agent.guard("one", {}, async () => {
      const waiting = failure(
        agent.guard("one", { waitMs: 60_000, signal: control.signal }, () => "never"),
      );
      await until("it waits", async () => (await agent.status()).counts.waiters === 1);
      control.abort(new Error("enough"));
      expect(await waiting).toMatchObject({ message: "enough" });
    });
    // Nothing of it is left: neither a waiter nor a grant.
    await until("all is given back", async () => {
      const { waiters, grants } = (await agent.status()).counts;
      return waiters === 0 && grants === 0;
    });
    let started = false;
    const late = agent.guard("one", { signal: control.signal }, () => void (started = true));
    expect(await failure(late)).toMatchObject({ message: "enough" });
    expect(started).toBe(false);
  });

  test("aborts the token's signal when the caller's aborts", async () => {
    await using agent = await connect({ socket: alone.socket });
    const control = new AbortController();
    await agent.guard("one", { signal: control.signal }, async (token) => {
      control.abort(new Error("stop"));
      expect(await aborted(token.signal)).toMatchObject({ message: "stop" });
      // The lease is none the worse: what was begun can be ended in order.
      await token.verify();
    });
  });

  test("connects again when the agent was restarted, and loses what was granted before", async () => {
    await using first = await RealAgent.start({ node: "phoenix" });
    first.makeStore("one");
    await using agent = await connect({ socket: first.socket });
    let kept: Token | undefined;
    const lost = await failure(agent.guard("one", {}, async (token) => {
      kept = token;
      await first.end("SIGKILL");
      const reason = await aborted(token.signal);
      expect(reason).toBeInstanceOf(LostError);
      expect(() => requireToken(token, "one")).toThrow(LostError);
    }));
    expect(lost).toBeInstanceOf(LostError);
    expect(lost).toMatchObject({ kind: "lost", retryable: false });
    expect(await failure(agent.held("one"))).toBeInstanceOf(UnavailableError);
    const socket = ["--socket", first.socket];
    await using second = await RealAgent.start({
      node: "phoenix",
      state: first.state,
      locks: first.locks,
      flags: socket,
    });
    expect(second.socket).not.toBe(first.socket); // the later flag counts
    expect(await agent.held("one")).toBe(true);
    await agent.guard("one", {}, (token) => {
      expect(() => requireToken(kept!, "one")).toThrow(LostError);
      expect(token.epoch!).toBeGreaterThan(kept!.epoch!);
    });
  });
});

describe("a token", () => {
  /** Everything that a program could try to pass off as a token for "one". */
  function forgeries(real: Token): Record<string, unknown> {
    const Class = Object.getPrototypeOf(real).constructor;
    const public_ = { store: "one", epoch: real.epoch, signal: real.signal, live: true };
    return {
      "nothing": undefined,
      "null": null,
      "a string": "secret",
      "an object with its members": { ...public_, verify: () => Promise.resolve() },
      "a spread copy": { ...real },
      "an assigned copy": Object.create(
        Class.prototype,
        Object.getOwnPropertyDescriptors(public_),
      ),
      // deno-lint-ignore zit/no-token-cast
      "a structured clone": structuredClone(real),
      "what JSON gives back": JSON.parse(JSON.stringify(real)),
      // deno-lint-ignore zit/no-token-cast
      "an heir": Object.create(real),
      // deno-lint-ignore zit/no-token-cast
      "a proxy": new Proxy(real, {}),
    };
  }

  test("is refused when forged, copied or serialised", async () => {
    await using agent = await connect({ socket: alone.socket });
    await agent.guard("one", {}, (token) => {
      requireToken(token, "one");
      for (const [what, forged] of Object.entries(forgeries(token))) {
        let error: unknown = null;
        try {
          // deno-lint-ignore zit/no-token-cast
          requireToken(forged as Token, "one");
        } catch (thrown) {
          error = thrown;
        }
        expect(error, what).toBeInstanceOf(NoTokenError);
      }
      const Class = Object.getPrototypeOf(token).constructor;
      expect(() => new Class(Symbol("token"), {})).toThrow(TypeError);
      expect(() => Reflect.construct(Class, [undefined, { store: null, refusal: null }]))
        .toThrow(TypeError);
      expect(() => new (class extends Class {})()).toThrow(TypeError);
      // What it stands for is nowhere to be read.
      expect(JSON.stringify(token)).toBe("{}");
      expect(Bun.inspect(token)).not.toMatch(/[A-Za-z0-9_-]{20,}/);
    });
  });

  test("is refused for another store", async () => {
    await using agent = await connect({ socket: alone.socket });
    await agent.guard("one", {}, (token) => {
      expect(() => requireToken(token, "two")).toThrow("the token is for one");
    });
  });

  test("from another copy of this module is refused", async () => {
    using directory = tempDir();
    const built = await Bun.build({ entrypoints: [MODULE], outdir: directory.path, target: "bun" });
    const copy = await import(built.outputs[0].path);
    const theirs: Token = copy.unguarded("another copy");
    copy.requireToken(theirs, "one");
    expect(() => requireToken(theirs, "one")).toThrow(NoTokenError);
  });
});

describe("a token whose lease goes", () => {
  const TTL_MS = 3_000;
  let nats: NatsServer;
  beforeAll(async () => void (nats = await NatsServer.start()));
  afterAll(() => nats.stop());

  test("aborts its signal before the deadline, and is refused from the deadline on", async () => {
    await using host = await RealAgent.start({
      node: "alpha",
      nats: nats.url,
      flags: ["--ttl", `${TTL_MS}ms`],
    });
    host.makeStore("one");
    await using agent = await connect({ socket: host.socket });
    const error = await failure(agent.guard("one", { waitMs: 10_000 }, async (token) => {
      await token.verify();
      nats.freeze();
      const reason = await aborted(token.signal);
      expect(reason).toBeInstanceOf(LostError);
      expect((reason as Error).message).toContain("could not be renewed");
      // A third of the TTL before the deadline, less what a busy machine takes.
      expect(token.remainingMs).toBeGreaterThan(0);
      expect(token.remainingMs).toBeLessThanOrEqual(TTL_MS / 3);
      requireToken(token, "one");
      await until("the deadline", () => !token.live);
      expect(() => requireToken(token, "one")).toThrow(LostError);
      expect(await failure(token.verify())).toBeInstanceOf(LostError);
      return "too late";
    }));
    nats.thaw();
    // It resolved, and yet: nobody may take this write for made.
    expect(error).toBeInstanceOf(LostError);
  });

  test(
    "is refused when the client itself was suspended past its deadline, before anything else runs",
    async () => {
      await using host = await RealAgent.start({
        node: "alpha",
        nats: nats.url,
        flags: ["--ttl", `${TTL_MS}ms`],
      });
      host.makeStore("asleep");
      const script = `
      import { connect, requireToken } from ${JSON.stringify(MODULE)};
      const agent = await connect({ socket: ${JSON.stringify(host.socket)} });
      const tell = (error) => console.log(error.name);
      await agent.guard("asleep", { waitMs: 10_000 }, async (token) => {
        requireToken(token, "asleep");
        console.log("stopping");
        // In one turn of the event loop: no timer and no message of the agent can be seen.
        process.kill(process.pid, "SIGSTOP");
        try { requireToken(token, "asleep"); } catch (error) { tell(error); }
        console.log(token.live, token.remainingMs, token.signal.aborted);
        await token.verify().catch(tell);
      }).catch(tell);
      process.exit();
    `;
      const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
      reap(child.pid);
      await until("it is stopped", () => /^State:\s+T/m.test(statusOf(child.pid)));
      // Meanwhile the agent goes on renewing: it is not known to who sleeps.
      await Bun.sleep(TTL_MS); // how long it is stopped is what is tested
      child.kill("SIGCONT");
      const printed = await new Response(child.stdout).text();
      expect(printed).toBe("stopping\nLostError\nfalse 0 true\nLostError\nLostError\n");
      await child.exited;
      reaped(child.pid);
    },
    60_000,
  );

  test("aborts its signal when the machine was suspended, though timers stood still", async () => {
    // A machine's suspension is played: clocks that run on in it jump, timers do not know of it.
    let suspendedMs = 0;
    const clock = new BootClock(() => bootTimeMs() + suspendedMs);
    const connection = await alone.client();
    const grants = new Grants(connection, { clock, socket: alone.socket });
    const grant = await grants.ask({ store: "one", wait_ms: 20_000 }, { passLock: null });
    expect(grant.remainingMs).toBeGreaterThan(5_000);
    const realNow = Date.now;
    try {
      suspendedMs = 60_000;
      Date.now = () => realNow() + suspendedMs;
      const startMs = performance.now();
      const reason = await aborted(grant.signal);
      // Long before a timer that was set for the deadline.
      expect(performance.now() - startMs).toBeLessThan(5_000);
      expect(reason).toBeInstanceOf(LostError);
      expect(grant.refusal).toBeInstanceOf(LostError);
    } finally {
      Date.now = realNow;
      await grants.end(grant).catch(() => {});
    }
  });

  test("is lost at once when another takes the entry, and the holder is told to the next guard", async () => {
    await using alpha = await RealAgent.start({
      node: "alpha",
      nats: nats.url,
      flags: ["--ttl", `${TTL_MS}ms`, "--address", "http://alpha"],
    });
    await using beta = await RealAgent.start({ node: "beta", nats: nats.url });
    for (const host of [alpha, beta]) host.makeStore("three");
    await using first = await connect({ socket: alpha.socket });
    await using second = await connect({ socket: beta.socket });
    await first.guard("three", { waitMs: 10_000 }, async () => {
      const refused = await failure(second.guard("three", {}, () => {}));
      expect(refused).toBeInstanceOf(NotHolderError);
      expect(refused).toMatchObject({ retryable: true, holder: { node: "alpha" } });
      expect((refused as NotHolderError).holder!.address).toBe("http://alpha");
      const holder = await second.holder("three");
      expect(holder).toMatchObject({ state: "other", node: "alpha" });
    });
  });
});

describe("unguarded()", () => {
  test("makes a token for any store, and counts", async () => {
    const before = unguardedUses();
    const token = unguarded("  a test of unguarded  ");
    unguarded("a test of unguarded");
    requireToken(token, "one");
    requireToken(token, "two");
    await token.verify();
    expect(token).toMatchObject({ store: null, epoch: null, unguarded: "a test of unguarded" });
    const after = unguardedUses();
    expect(after.total - before.total).toBe(2);
    expect(after.byReason.get("a test of unguarded")).toBe(2);
  });

  test("is refused without a reason", () => {
    const before = unguardedUses().total;
    const unseen = ["\u200b", "\u00ad\ufeff", "\u3164", "\u202e \u2060", "\u{e0041}", "-", "…"];
    for (const reason of ["", "  \n", undefined as unknown as string, ...unseen]) {
      expect(() => unguarded(reason)).toThrow(InvalidError);
    }
    expect(unguardedUses().total).toBe(before);
  });

  test("warns on stderr, once for each reason", () => {
    const script = `
      import { unguarded } from ${JSON.stringify(MODULE)};
      for (const reason of ["repair", "repair", "no fleet"]) unguarded(reason);
    `;
    // Also where the environment silences the warnings of the runtime.
    for (const env of [{}, { NODE_NO_WARNINGS: "1" }]) {
      const { stderr } = Bun.spawnSync([process.execPath, "-e", script], {
        env: { ...process.env, ...env },
      });
      const lines = stderr.toString().match(/UNGUARDED reason="[^"]*"/g);
      expect(lines).toEqual(['UNGUARDED reason="repair"', 'UNGUARDED reason="no fleet"']);
    }
  });
});

describe("held() and others", () => {
  test("answer for one store and for very many", async () => {
    await using agent = await connect({ socket: alone.socket });
    expect(await agent.held("one")).toBe(true);
    const stores = Array.from({ length: 12_000 }, (_, i) => `${"x".repeat(100)}-${i}`);
    const held = await agent.held(["__proto__", ...stores]);
    expect(held.size).toBe(12_001);
    expect([...held.values()].every((each) => each)).toBe(true);
    const listed: string[] = [];
    for await (const lease of agent.leases("x")) listed.push(lease.store);
    expect(listed.length).toBe(12_000);
    expect(await agent.history("never-asked")).toEqual([]);
    expect((await agent.stepdown({ store: "two" }, { forMs: 0 })).remaining).toBe(0);
  });

  test("watch() tells states and changes until it is left, and goes on over a restart", async () => {
    await using host = await RealAgent.start({ node: "watched" });
    await using agent = await connect({ socket: host.socket });
    const seen: string[] = [];
    let second: RealAgent | undefined;
    for await (const news of agent.watch(["one"])) {
      if (news.type === "disconnected") {
        seen.push("disconnected");
        second ??= await RealAgent.start({
          node: "watched",
          state: host.state,
          flags: ["--socket", host.socket],
        });
        continue;
      }
      seen.push(`${news.store} ${news.held}`);
      if (!news.held) continue;
      if (second !== undefined) break;
      await host.end("SIGKILL");
    }
    await second![Symbol.asyncDispose]();
    const held = seen.filter((each) => each === "one true");
    expect(held.length).toBe(2);
    expect(seen.indexOf("disconnected")).toBeGreaterThan(seen.indexOf("one true"));
    expect(seen.lastIndexOf("one true")).toBe(seen.length - 1);
  });

  test("watch() ends with the signal's reason, and throws what will not pass", async () => {
    await using agent = await connect({ socket: alone.socket });
    const control = new AbortController();
    const first = agent.watch(["one"], { signal: control.signal });
    expect((await first.next()).value).toMatchObject({ type: "lease", store: "one" });
    const next = failure((async () => {
      while (true) await first.next();
    })());
    control.abort(new Error("seen enough"));
    expect(await next).toMatchObject({ message: "seen enough" });
    const wrong = await failure(agent.watch(["no/../store"]).next());
    expect(wrong).toBeInstanceOf(AgentError);
    expect(wrong).toMatchObject({ kind: "invalid" });
  });

  test("a closed client asks nobody", async () => {
    const agent = await connect({ socket: alone.socket });
    await agent.close();
    const asked = [agent.held("one"), agent.guard("one", {}, () => {}), agent.reach()];
    for (const error of await Promise.all(asked.map(failure))) {
      expect(error).toBeInstanceOf(InvalidError);
      expect(error).toMatchObject({ retryable: false });
      expect((error as Error).message).toContain("this client was closed");
    }
    expect(() => agent.heldView(["one"])).toThrow(InvalidError);
    expect(() => agent.watch(["one"])).toThrow(InvalidError);
  });
});
