import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect, InvalidError } from "../../src/client/mod.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { BootClock } from "../../src/client/clock.ts";
import { HeldView } from "../../src/client/held_view.ts";
import { freezeProcess } from "../support/freeze.ts";
import { reap, reaped } from "../support/reaper.ts";
import { TestServer } from "../socket/support/server.ts";
import type { StatusResult } from "../../src/client/mod.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;
const TTL_MS = 10_000;
/** What the view counts on after a beat: 1 % of the TTL. */
const GOOD_FOR_MS = TTL_MS / 100;

let nats: NatsServer;
beforeAll(async () => void (nats = await NatsServer.start()));
afterAll(() => nats.stop());

function start(node: string, flags: string[] = []): Promise<RealAgent> {
  return RealAgent.start({ node, nats: nats.url, flags: ["--ttl", `${TTL_MS}ms`, ...flags] });
}

function statusOf(pid: number): string {
  return readFileSync(`/proc/${pid}/status`, "utf8");
}

async function heldNow(view: HeldView, store: string): Promise<void> {
  await until(`${store} is held`, () => view.held(store));
}

/**
 * For how long the view goes on to say so, in ms, by when it was asked. Without an await: nothing comes in
 * meanwhile, not even that a connection ended, so nothing but the clock can end it.
 */
function heldForMs(view: HeldView, store: string): number {
  const startMs = performance.now();
  let lastMs = startMs;
  for (let nowMs = startMs; view.held(store); nowMs = performance.now()) lastMs = nowMs;
  return lastMs - startMs;
}

describe("HeldView", () => {
  test("shows what is held, and changes, without asking", async () => {
    await using alpha = await start("alpha");
    await using beta = await start("beta");
    await using client = await connect({ socket: alpha.socket });
    await using other = await connect({ socket: beta.socket });
    await until("beta holds two", () => other.held("two"));
    await using view = client.heldView(["one", "two"]);
    await view.ready;
    await heldNow(view, "one");
    expect(view.held("two")).toBe(false);
    expect(view.held("never-heard-of")).toBe(false);
    expect(view.heldOf(["two", "one", "three"])).toEqual(["one"]);
    await other.stepdown({ store: "two" }, { forMs: 60_000 });
    await heldNow(view, "two");
    await client.stepdown({ store: "one" }, { forMs: 60_000 });
    // Told before it was released, so no later than the answer.
    await until("one is given up", () => !view.held("one"));
    expect(view.fresh).toBe(true);
  });

  test("ends with its client, as do watches, and the process can end", async () => {
    await using alpha = await start("ends");
    const client = await connect({ socket: alpha.socket });
    const view = client.heldView(["e1"]);
    await heldNow(view, "e1");
    const seen: string[] = [];
    const watched = (async () => {
      for await (const { type } of client.watch(["e1"])) seen.push(type);
    })();
    await until("the watch has begun", () => seen.length > 0);
    const early = client.heldView(["e2"]);
    const begunLate = client.watch(["e1"]);
    const closing = client.close();
    for (const each of [view, early]) {
      expect([each.held("e1"), each.fresh, each.heldOf(["e1", "e2"])]).toEqual([false, false, []]);
    }
    await Promise.all([closing, watched]);
    expect(await begunLate.next()).toEqual({ done: true, value: undefined });
    expect(new Set(seen)).toEqual(new Set(["lease"]));
    expect(await early.ready.catch((error) => error)).toBeInstanceOf(InvalidError);
    expect(view.fresh).toBe(false);
    await view.close();
  });

  test.each(["node", "bun"])(
    "keeps no process of %s once its client is closed",
    async (runtime) => {
      const found = runtime === "bun" ? process.execPath : Bun.which(runtime);
      if (found === null) return console.log("skipped: there is no node");
      await using alpha = await start("process");
      using scratch = tempDir();
      const built = await Bun.build({
        entrypoints: [MODULE],
        target: "node",
        outdir: scratch.path,
      });
      const script = join(scratch.path, "program.mjs");
      writeFileSync(
        script,
        `
      import { connect } from ${JSON.stringify(built.outputs[0]!.path)};
      const agent = await connect({ socket: ${JSON.stringify(alpha.socket)} });
      const view = agent.heldView(["p1"]);
      await view.ready;
      agent.heldView(["p2"]);
      (async () => { for await (const _ of agent.watch(null)); console.log("watched"); })();
      await agent.close();
      console.log(view.fresh);
    `,
      );
      const child = Bun.spawn([found, script], { stdout: "pipe", stderr: "inherit" });
      reap(child.pid);
      const printed = await new Response(child.stdout).text();
      expect(await child.exited).toBe(0);
      reaped(child.pid);
      expect(printed.split("\n").toSorted()).toEqual(["", "false", "watched"]);
    },
  );

  test("is not true for longer than its bound when the agent stands still", async () => {
    await using alpha = await start("still");
    await using client = await connect({ socket: alpha.socket });
    await using view = client.heldView(["s1"]);
    await heldNow(view, "s1");
    freezeProcess(alpha.pid);
    expect(heldForMs(view, "s1")).toBeLessThanOrEqual(GOOD_FOR_MS);
    expect(view.heldOf(["s1"])).toEqual([]);
    alpha.signal("SIGCONT");
    await heldNow(view, "s1");
  });

  test("is not true for longer than its bound when the agent is killed", async () => {
    await using alpha = await start("killed");
    await using client = await connect({ socket: alpha.socket });
    await using view = client.heldView(["k1"]);
    await heldNow(view, "k1");
    alpha.signal("SIGKILL");
    expect(heldForMs(view, "k1")).toBeLessThanOrEqual(GOOD_FOR_MS);
    expect(view.fresh).toBe(false);
    await alpha.exited();
    await until("it is told", () => view.held("k1") === false && view.heldOf(["k1"]).length === 0);
  });

  // Where it stops it last says that all is held, where it says that no more, and right before the end.
  test.each([
    ["goes on", 0],
    ...[140, 90, 60, 15].map((ms) => [`stops ${ms} ms before`, ms] as const),
  ])(
    "is never true past the deadline when renewals fail and the agent %s",
    async (_what, stopMs) => {
      const ttlMs = 4_000;
      const own = await NatsServer.start();
      try {
        await using alpha = await RealAgent.start({
          node: "alpha",
          nats: own.url,
          flags: ["--ttl", `${ttlMs}ms`],
        });
        alpha.makeStore("d1");
        const connection = await alpha.client();
        let deadlineMs = 0;
        connection.onNotification(({ method, params }) => {
          if (method === "renewed") deadlineMs = params.deadline_boot_ms;
        });
        await using client = await connect({ socket: alpha.socket });
        await using view = client.heldView(["d1"]);
        await heldNow(view, "d1");
        const guard = { store: "d1", follow: true, wait_ms: 10_000 };
        const { deadline_boot_ms, token } = await connection.call("guard", guard);
        deadlineMs = Math.max(deadlineMs, deadline_boot_ms);
        own.freeze();
        let [lastMs, stopped, seen] = [0, false, 0];
        for (let nowMs = bootTimeMs(); nowMs < deadlineMs + 300; nowMs = bootTimeMs()) {
          // The clock was read before: it was true at that time or later.
          if (view.held("d1")) [lastMs, seen] = [nowMs, seen + 1];
          if (!stopped && stopMs > 0 && nowMs > deadlineMs - stopMs) {
            freezeProcess(alpha.pid);
            stopped = true;
          }
          await Bun.sleep(1);
        }
        alpha.signal("SIGCONT");
        own.thaw();
        expect(seen).toBeGreaterThan(100); // it goes by the agent as long as that holds it
        expect(lastMs).toBeLessThan(deadlineMs);
        await connection.call("release", { token }).catch(() => {});
      } finally {
        await own.stop();
      }
    },
  );

  test("is false when the agent is killed, and true again once it is back", async () => {
    await using alpha = await start("reborn");
    await using client = await connect({ socket: alpha.socket });
    await using view = client.heldView(["r1"]);
    await heldNow(view, "r1");
    await alpha.end("SIGKILL");
    await until("it is false", () => !view.held("r1"));
    const flags = ["--socket", alpha.socket];
    await using second = await RealAgent.start({
      node: "reborn",
      nats: nats.url,
      state: alpha.state,
      flags,
    });
    await heldNow(view, "r1");
    expect(second.pid).not.toBe(alpha.pid);
  });

  test("is false from the moment the agent begins to end", async () => {
    await using alpha = await start("ending");
    alpha.makeStore("e1");
    await using client = await connect({ socket: alpha.socket });
    await using view = client.heldView(["e1"]);
    await heldNow(view, "e1");
    await client.guard("e1", {}, async () => {
      alpha.signal("SIGTERM"); // it waits for this guard
      await until("it is false", () => !view.held("e1"));
      expect((await client.status()).state).toBe("draining");
      expect(view.fresh).toBe(true); // the agent says so itself
    });
  });

  test("is false after this process was suspended, before anything else could run", async () => {
    await using alpha = await start("sleeper");
    const script = `
      import { connect } from ${JSON.stringify(MODULE)};
      const client = await connect({ socket: ${JSON.stringify(alpha.socket)} });
      const view = client.heldView(["p1"]);
      while (!view.held("p1")) await Bun.sleep(1);
      // In one turn of the event loop: only the clock can know of it.
      console.log("stopping", view.held("p1"));
      process.kill(process.pid, "SIGSTOP");
      console.log(view.held("p1"), view.heldOf(["p1"]).length);
      process.exit(0);
    `;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    reap(child.pid);
    await until("it is stopped", () => /^State:\s+T/m.test(statusOf(child.pid)));
    await Bun.sleep(2 * GOOD_FOR_MS); // how long it is stopped is what is tested
    child.kill("SIGCONT");
    expect(await new Response(child.stdout).text()).toBe("stopping true\nfalse 0\n");
    await child.exited;
    reaped(child.pid);
  });

  test("counts suspended time of the machine: its clock runs on", async () => {
    await using alpha = await start("laptop");
    let suspendedMs = 0;
    const clock = new BootClock(() => performance.now() + suspendedMs);
    await using view = new HeldView({ socket: alpha.socket }, ["m1"], clock);
    await heldNow(view, "m1");
    const realNow = Date.now;
    try {
      suspendedMs = 3_000; // both clocks that run in suspend
      Date.now = () => realNow() + suspendedMs;
      expect(view.held("m1")).toBe(false);
    } finally {
      Date.now = realNow;
    }
  });

  test(
    "a tick over 100,000 stores costs no round trip, and little processor time for each",
    async () => {
      // A server of the protocol: what is measured is on this side.
      let subscriptions = 0;
      await using server = await TestServer.start({
        status: (_params, _connection, reply) => reply.ok({ ttl_ms: 60_000 } as StatusResult),
        held: (_params, _connection, reply) => reply.ok({ held: {} }),
        watch(params, connection, reply) {
          const subscription = `w${++subscriptions}`;
          reply.ok({ subscription });
          const ours = { subscription, held: true, node: "n", address: null, epoch: 1 };
          for (const store of params.stores!) {
            connection.notify("lease", { ...ours, store, state: "self" });
          }
        },
      });
      await using client = await connect({ socket: server.path });
      const stores = Array.from({ length: 100_000 }, (_, i) => `group-${i % 100}/store-${i}`);
      const begunMs = performance.now();
      await using view = client.heldView(stores);
      await view.ready;
      await until("all are held", () => view.heldOf(stores).length === stores.length);
      const readyMs = performance.now() - begunMs;
      const nsPerStore: number[] = [];
      const single: number[] = [];
      for (let tick = 0; tick < 20; tick++) {
        await until("it is fresh", () => view.fresh);
        const startMs = performance.now();
        const held = view.heldOf(stores);
        nsPerStore.push((performance.now() - startMs) / stores.length * 1e6);
        if (held.length > 0) expect(held.length).toBe(stores.length);
        const fromMs = performance.now();
        for (let i = 0; i < 10_000; i++) view.held(stores[i]);
        single.push((performance.now() - fromMs) / 10_000 * 1e6);
      }
      // The quickest: what it costs by itself, whatever else this machine does.
      const best = Math.min(...nsPerStore);
      const figure = (ns: number) => `${Math.round(ns)} ns`;
      console.log(
        `heldOf: ${figure(best)} a store, held: ${figure(Math.min(...single))}, ` +
          `100,000 stores known after ${Math.round(readyMs)} ms`,
      );
      // 200 ns is the target, and what a quiet machine shows; a round trip would be 100 times this.
      expect(best).toBeLessThanOrEqual(1_000);
    },
    60_000,
  );

  test("refuses what is no store code, and says when it never becomes ready", async () => {
    await using alpha = await start("picky");
    await using client = await connect({ socket: alpha.socket });
    expect(() => client.heldView(["../x"])).toThrow(InvalidError);
    const view = new HeldView({ socket: join(alpha.dir, "nobody.sock") }, ["x"]);
    expect(view.held("x")).toBe(false);
    await view.close();
    await expect(view.ready).rejects.toThrow("closed");
  });
});
