/**
 * The rules that the forge has always lived by, each shown on the whole: real agents, a real
 * nats-server, real locks. TTLs are short so that a failover takes seconds.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { closeSync, openSync } from "node:fs";
import { Kvm } from "@nats-io/kv";
import { jetstream } from "@nats-io/jetstream";
import { connect as connectNats } from "@nats-io/transport-node";
import { tryFlock } from "../../src/sys/flock.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, type RealAgentOptions, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 2_000;

let server: NatsServer;
let buckets = 0;

beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** Flags of a fleet of its own. */
function fleet(
  ttl = `${TTL_MS}ms`,
): (node: string, more?: Partial<RealAgentOptions>) => Promise<RealAgent> {
  const bucket = `rules${++buckets}`;
  return (node, more = {}) =>
    RealAgent.start({
      node,
      nats: server.url,
      ...more,
      flags: ["--bucket", bucket, "--ttl", ttl, ...more.flags ?? []],
    });
}

async function bucketOf(agent: RealAgent) {
  const name = agent.options.flags![1];
  const nc = await connectNats({ servers: server.url });
  const kv = await new Kvm(jetstream(nc)).open(name, { bindOnly: true });
  return { kv, [Symbol.asyncDispose]: () => nc.close() };
}

describe("records", () => {
  test("there is one entry a store in bucket leases, TTL 15 s unless told otherwise", async () => {
    await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
    agent.makeStore("one");
    const client = await agent.client();
    const { epoch } = await client.call("guard", { store: "one" });
    const nc = await connectNats({ servers: server.url });
    try {
      const kv = await new Kvm(jetstream(nc)).open("leases", { bindOnly: true });
      const status = await kv.status();
      expect(status.ttl).toBe(15_000);
      expect(status.history).toBe(1);
      const keys: string[] = [];
      for await (const key of await kv.keys()) keys.push(key);
      expect(keys).toEqual(["one"]);
      const entry = (await kv.get("one"))!;
      expect(entry.string()).toBe("alpha");
      expect(entry.revision).toBeGreaterThan(epoch);
      expect((await client.call("status", {})).ttl_ms).toBe(15_000);
    } finally {
      await nc.close();
    }
  });

  test("a hold is renewed every third of its TTL", async () => {
    await using agent = await fleet("3s")("alpha");
    const client = await agent.client();
    await client.call("held", { store: "one" });
    await until(
      "three renewals",
      () => agent.log().filter((l) => l.event === "renewed").length > 3,
    );
    const times = agent.log().filter((line) => line.event === "renewed")
      .map((line) => Date.parse(line.time));
    const gaps = times.slice(1).map((time, i) => time - times[i]);
    for (const gap of gaps) {
      expect(gap).toBeGreaterThan(850); // a third, less 5 % of jitter, less what a timer may be early
      expect(gap).toBeLessThan(2_000); // twice as long would mean that one was left out
    }
  });
});

describe("failover", () => {
  test("there is no grace at a clean first start", async () => {
    await using agent = await fleet()("alpha");
    agent.makeStore("one");
    const client = await agent.client();
    const { remaining_ms } = await client.call("guard", { store: "one" });
    expect(remaining_ms).toBeGreaterThan(0);
    expect(await agent.logged("acquired", { store: "one" })).toBeDefined();
    expect(agent.log().some((line) => line.event === "grace")).toBe(false);
  });

  test("a store whose holder went away is acquired by the loop, and granted after a grace", async () => {
    const start = fleet();
    await using alpha = await start("alpha");
    alpha.makeStore("one");
    const first = await (await alpha.client()).call("guard", { store: "one" });
    await using beta = await start("beta");
    beta.makeStore("one");
    const client = await beta.client();
    const { kind, error } = await refusal(client.call("guard", { store: "one" }));
    expect(kind).toBe("not_holder");
    expect(error.holder?.node).toBe("alpha");
    expect(error.holder?.epoch).toBe(first.epoch);
    alpha.signal("SIGKILL");
    // Nobody asks beta again: its loop takes the store over.
    await beta.logged("acquired", { store: "one" });
    const during = await refusal(client.call("guard", { store: "one" }));
    expect(during.kind).toBe("grace");
    expect(during.error.retryAfterMs).toBeGreaterThan(0);
    expect(during.error.retryAfterMs).toBeLessThanOrEqual(TTL_MS);
    expect((await client.call("held", { store: "one" })).held).toBe(false);
    const second = await client.call("guard", { store: "one", wait_ms: 2 * TTL_MS });
    expect(second.epoch).toBeGreaterThan(first.epoch);
    const acquired = await beta.logged("acquired", { store: "one" });
    const granted = await beta.logged("granted", { store: "one" });
    expect(Date.parse(granted.time) - Date.parse(acquired.time)).toBeGreaterThanOrEqual(
      TTL_MS - 50,
    );
    expect((await client.call("held", { store: "one" })).held).toBe(true);
  });

  test("a holder that ends cleanly leaves no grace, and a waiting guard is granted at once", async () => {
    const start = fleet("6s");
    await using alpha = await start("alpha");
    alpha.makeStore("one");
    const alphas = await alpha.client();
    const { token } = await alphas.call("guard", { store: "one" });
    await alphas.call("release", { token });
    await using beta = await start("beta");
    beta.makeStore("one");
    const client = await beta.client();
    const waiting = client.call("guard", { store: "one", wait_ms: 20_000, wait_lease: true });
    await beta.logged("foreign", { store: "one" });
    expect(await alpha.end("SIGTERM")).toBe(0);
    const grant = await waiting;
    expect(grant.node).toBe("beta");
    // Far less than the TTL that an entry needs to age out.
    const released = await alpha.logged("released", { store: "one" }).catch(() =>
      alpha.log().find((line) => line.event === "released")!
    );
    const granted = await beta.logged("granted", { store: "one" });
    expect(Date.parse(granted.time) - Date.parse(released.time)).toBeLessThan(3_000);
    expect(beta.log().some((line) => line.event === "grace")).toBe(false);
  });

  test("an agent that was killed and restarted goes on with its entries (client-go#448)", async () => {
    const start = fleet("10s");
    await using first = await start("alpha");
    first.makeStore("one");
    const client = await first.client();
    const { epoch, token } = await client.call("guard", { store: "one" });
    await client.call("release", { token });
    await first.end("SIGKILL");
    await using second = await start("alpha", { state: first.state, locks: first.locks });
    // No entry has had the time to age out: this grant is an adoption, as a new tenure.
    const grant = await (await second.client()).call("guard", { store: "one" });
    expect(grant.epoch).toBeGreaterThan(epoch);
    expect(second.log().some((line) => line.event === "grace")).toBe(false);
  });

  test("an entry of the same node name from elsewhere is foreign (kubernetes#58302)", async () => {
    const start = fleet();
    await using first = await start("alpha");
    first.makeStore("one");
    await (await first.client()).call("guard", { store: "one" });
    await using second = await start("alpha");
    second.makeStore("one");
    const client = await second.client();
    const { kind, error } = await refusal(client.call("guard", { store: "one" }));
    expect(kind).toBe("not_holder");
    expect(error.message).toContain("another agent that calls itself alpha, too, holds it");
    expect(error.message).not.toContain("send the write there");
    const status = await until("the name is found twice", async () => {
      const now = await client.call("status", {});
      return now.checks.some(({ name, ok }) => name === "duplicate_node" && !ok) && now;
    });
    expect(status.healthy).toBe(false);
    const check = await runClient(second, ["--check"]);
    expect(check.status).toBe(1);
    expect(check.stdout).toContain("duplicate_node");
  });
});

describe("held", () => {
  test("held is false a TTL after renewals stop, and other refusals say why", async () => {
    const start = fleet();
    const own = await NatsServer.start();
    try {
      await using agent = await start("alpha", { nats: own.url });
      agent.makeStore("one");
      const client = await agent.client();
      expect((await client.call("held", { store: "one" })).held).toBe(true);
      const { token } = await client.call("guard", { store: "one" });
      own.freeze();
      expect((await client.call("held", { store: "one" })).held).toBe(true); // from memory
      await until("held is false", async () => !(await client.call("held", { store: "one" })).held);
      const lost = await agent.logged("lost", { store: "one" });
      const renewed = agent.log().filter((line) => line.event === "renewed").at(-1)!;
      const validMs = Date.parse(lost.time) - Date.parse(renewed.time);
      expect(validMs).toBeLessThanOrEqual(TTL_MS + 100);
      expect(lost.reason).toBe("deadline");
      const asked = performance.now();
      expect((await refusal(client.call("guard", { store: "one", wait_ms: 60_000 }))).kind)
        .toBe("unavailable");
      expect(performance.now() - asked).toBeLessThan(4_000);
      expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("lost");
      own.thaw();
      await client.call("release", { token }).catch(() => {});
      const again = await client.call("guard", { store: "one", wait_ms: 30_000, wait_lease: true });
      expect(again.epoch).toBeGreaterThan(0);
    } finally {
      await own.stop();
    }
  });

  test("held is false from the moment shutdown begins", async () => {
    await using agent = await fleet("6s")("alpha", { flags: ["--drain", "20s"] });
    agent.makeStore("one");
    const client = await agent.client();
    const { token } = await client.call("guard", { store: "one" });
    expect((await client.call("held", { store: "one" })).held).toBe(true);
    agent.signal("SIGTERM");
    await agent.logged("draining");
    expect((await client.call("held", { store: "one" })).held).toBe(false);
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("draining");
    // The grant that is out goes on, and is proven still.
    expect((await client.call("verify", { token, store: "one" })).remaining_ms).toBeGreaterThan(0);
    await client.call("release", { token });
    expect(await agent.exited()).toBe(0);
  });

  test("a lease whose grant did not finish is not released but ages out (kubernetes#139991)", async () => {
    await using agent = await fleet("6s")("alpha", { flags: ["--drain", "300ms"] });
    agent.makeStore("one");
    const client = await agent.client();
    await client.call("guard", { store: "one" });
    await using bucket = await bucketOf(agent);
    expect(await agent.end("SIGTERM")).toBe(0);
    expect(agent.log().find((line) => line.event === "drained")?.remaining).toBe(1);
    const entry = await bucket.kv.get("one");
    expect(entry?.operation).toBe("PUT");
    // Nor does the log say that it was.
    expect(agent.log().some(({ event }) => event === "released")).toBe(false);
  });

  test("a step-down keeps a lease whose grant did not finish, and releases it when that ends", async () => {
    await using agent = await fleet("2s")("alpha", { flags: ["--drain", "300ms"] });
    agent.makeStore("one");
    const client = await agent.client();
    const { token } = await client.call("guard", { store: "one" });
    const ask = { store: "one", for_ms: 60_000 };
    expect(await client.call("stepdown", ask)).toEqual({ released: 0, remaining: 1 });
    // Longer than the TTL: else another node could write beside it.
    for (let renewals = 0; renewals < 4; renewals++) {
      await agent.logged("renewed", {}, agent.log().length);
    }
    expect((await client.call("verify", { token, store: "one" })).remaining_ms).toBeGreaterThan(0);
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("draining");
    await client.call("release", { token });
    expect((await agent.logged("released")).clean).toBe(true);
    expect((await client.call("holder", { store: "one" })).state).toBe("free");
  });
});

describe("the commit point", () => {
  test("a guard whose lease went while it waited for the lock is refused (etcd#11456)", async () => {
    await using agent = await fleet("6s")("alpha");
    const dir = agent.makeStore("one");
    const client = await agent.client();
    expect((await client.call("held", { store: "one" })).held).toBe(true);
    // Somebody has the lock, so the guard waits at gate 5, its lease gate passed.
    const holder = Bun.spawn([
      "flock",
      "-x",
      `${dir}/lease.lock`,
      "sh",
      "-c",
      "echo locked; read x",
    ], {
      stdin: "pipe",
      stdout: "pipe",
    });
    await holder.stdout.getReader().read();
    const waiting = refusal(client.call("guard", { store: "one", wait_ms: 20_000 }));
    await until(
      "the guard waits",
      async () => (await client.call("status", {})).counts.waiters === 1,
    );
    await using bucket = await bucketOf(agent);
    await bucket.kv.put("one", "somebody");
    holder.stdin.write("\n");
    holder.stdin.end();
    const { kind, error } = await waiting;
    expect(kind).toBe("not_holder");
    expect(error.holder?.node).toBe("somebody");
    await holder.exited;
  });

  test("verify refuses as soon as the lease went to another (etcd#10811)", async () => {
    await using agent = await fleet("6s")("alpha");
    agent.makeStore("one");
    const client = await agent.client();
    const { token } = await client.call("guard", { store: "one" });
    const lost = new Promise<string>((resolve) =>
      client.onNotification((n) => n.method === "lost" && resolve(n.params.kind))
    );
    await using bucket = await bucketOf(agent);
    await bucket.kv.put("one", "somebody");
    expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("lost");
    expect(await lost).toBe("not_holder");
    expect((await refusal(client.call("release", { token }))).kind).toBe("lost");
    // It is over now, whatever it was (consul#4902).
    expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("no_token");
  });

  test("a store that was removed and made again under a grant is lost to it", async () => {
    await using agent = await fleet("6s")("alpha");
    const dir = agent.makeStore("one");
    const client = await agent.client();
    const { token } = await client.call("guard", { store: "one" });
    await Bun.$`rm -rf ${dir}`;
    agent.makeStore("one");
    expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("lost");
    // What is there now can be guarded, though the first client never let go.
    expect((await client.call("guard", { store: "one" })).store).toBe("one");
  });
});

describe("tokens", () => {
  test("a token is needed to write: a made-up one, or another store's, is refused", async () => {
    await using agent = await fleet("6s")("alpha");
    agent.makeStore("one");
    agent.makeStore("two");
    const client = await agent.client();
    const { token } = await client.call("guard", { store: "one" });
    expect((await refusal(client.call("verify", { token: "made-up", store: "one" }))).kind)
      .toBe("no_token");
    expect((await refusal(client.call("verify", { token, store: "two" }))).kind).toBe("no_token");
    expect((await client.call("verify", { token, store: "one" })).store).toBe("one");
    await client.call("release", { token });
    expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("no_token");
    expect((await refusal(client.call("release", { token }))).kind).toBe("no_token");
  });

  test("a grant ends with its connection, and so does its lock (etcd#17470)", async () => {
    await using agent = await fleet("6s")("alpha");
    agent.makeStore("one");
    const [first, second] = [await agent.client(), await agent.client()];
    const { token } = await first.call("guard", { store: "one" });
    expect((await refusal(second.call("guard", { store: "one" }))).kind).toBe("busy");
    await first.close();
    const grant = await second.call("guard", { store: "one", wait_ms: 10_000 });
    expect((await refusal(second.call("verify", { token, store: "one" }))).kind).toBe("no_token");
    await second.call("release", { token: grant.token });
  });

  test("exclusive grants take turns, shared ones overlap each other alone", async () => {
    await using agent = await fleet("6s")("alpha");
    agent.makeStore("one");
    const client = await agent.client();
    const a = await client.call("guard", { store: "one", shared: true });
    const b = await client.call("guard", { store: "one", shared: true });
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("busy");
    const order: string[] = [];
    const third = client.call("guard", { store: "one", wait_ms: 20_000 });
    const exclusive = third.then((grant) => (order.push("exclusive"), grant));
    // Behind the exclusive one that waits: a shared guard does not overtake it.
    const later = client.call("guard", { store: "one", wait_ms: 20_000, shared: true })
      .then((grant) => (order.push("shared"), grant));
    await until("both wait", async () => (await client.call("status", {})).counts.waiters === 2);
    await client.call("release", { token: a.token });
    expect(order).toEqual([]);
    await client.call("release", { token: b.token });
    await client.call("release", { token: (await exclusive).token });
    await client.call("release", { token: (await later).token });
    expect(order).toEqual(["exclusive", "shared"]);
  });
});

describe("refusals", () => {
  test("a foreign holder and an unreachable coordinator are refused differently (dynamodb-lock-client#6)", async () => {
    const own = await NatsServer.start();
    const start = fleet("6s");
    await using alpha = await start("alpha", { nats: own.url });
    await using beta = await start("beta", { nats: own.url });
    for (const agent of [alpha, beta]) agent.makeStore("one");
    await (await alpha.client()).call("guard", { store: "one" });
    const client = await beta.client();
    expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("not_holder");
    const before = beta.log().length;
    await own.kill();
    await beta.logged("problem", { check: "coordinator" }, before);
    const { kind, error } = await refusal(client.call("guard", { store: "one", wait_ms: 60_000 }));
    expect(kind).toBe("unavailable");
    expect(error.exit).toBe(69);
    await own.stop();
  });

  test("a coordinator that hangs, or is gone, is told also to who waits for a turn or a lock", async () => {
    const own = await NatsServer.start();
    try {
      // Renewed each ten seconds: nothing is noticed by that.
      await using agent = await RealAgent.start({
        node: "alpha",
        nats: own.url,
        flags: ["--ttl", "30s"],
      });
      for (const store of ["turn", "lock"]) agent.makeStore(store);
      const client = await agent.client();
      const { token, lock_path } = await client.call("guard", { store: "lock" });
      await client.call("release", { token });
      await client.call("guard", { store: "turn" });
      const other = openSync(lock_path, "r+");
      expect(tryFlock(other)).toBe(true);
      own.freeze();
      const asked = performance.now();
      const refusals = await Promise.all(
        ["turn", "lock"].map((store) => refusal(client.call("guard", { store, wait_ms: 60_000 }))),
      );
      expect(refusals.map(({ kind }) => kind)).toEqual(["unavailable", "unavailable"]);
      expect(performance.now() - asked).toBeLessThan(5_000);
      const before = agent.log().length;
      await own.kill();
      await agent.logged("problem", { check: "coordinator" }, before);
      for (const params of [{}, { wait_ms: 60_000 }, { shared: true, wait_ms: 60_000 }]) {
        const { kind } = await refusal(client.call("guard", { store: "turn", ...params }));
        expect(kind).toBe("unavailable");
      }
      closeSync(other);
    } finally {
      await own.stop();
    }
  });

  test("without --nats and --standalone there is no agent; standalone is told with each grant", async () => {
    await using agent = await RealAgent.start({ node: "alone" });
    agent.makeStore("one");
    const grant = await (await agent.client()).call("guard", { store: "one" });
    expect(grant.unguarded).toBe("a test");
    const forgotten = await runClient(agent, ["run", "--node", "alone"]);
    expect(forgotten.status).toBe(64);
    const empty = await runClient(agent, ["run", "--standalone", ""]);
    expect(empty.status).toBe(64);
  });

  test("standalone epochs count up over restarts", async () => {
    await using first = await RealAgent.start({ node: "alone" });
    first.makeStore("one");
    const { epoch } = await (await first.client()).call("guard", { store: "one" });
    await first.end("SIGKILL");
    await using second = await RealAgent.start({
      node: "alone",
      state: first.state,
      locks: first.locks,
    });
    const grant = await (await second.client()).call("guard", { store: "one" });
    expect(grant.epoch).toBeGreaterThan(epoch);
  });

  test("an epoch on disk above ours is refused as stale (nats-server#7564)", async () => {
    await using agent = await fleet("6s")("alpha");
    const dir = agent.makeStore("one");
    await Bun.write(`${dir}/lease.lock`, '{"store":"one","node":"x","epoch":9007199254740000}\n');
    const client = await agent.client();
    const { kind, error } = await refusal(client.call("guard", { store: "one" }));
    expect(kind).toBe("stale_epoch");
    expect(error.message).toContain("9007199254740000");
    expect((await client.call("held", { store: "one" })).held).toBe(false);
    // Whoever watches the host hears of it, until it is put right.
    const fence = async () =>
      (await client.call("status", {})).checks.find(({ name }) => name === "fence");
    expect(await fence()).toMatchObject({ ok: false, message: expect.stringContaining("one") });
    const problem = await agent.logged("problem", { check: "fence" });
    expect(problem.level).toBe("error");
    await Bun.write(`${dir}/lease.lock`, "");
    await client.call("guard", { store: "one" });
    expect(await fence()).toBeUndefined();
  });
});
