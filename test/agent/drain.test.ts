/** The clean end of an agent: what runs finishes, the other node goes on at once. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { fleet, guardOne, notificationsOf, SharedLog } from "../support/fleet.ts";
import { faultsOf } from "../support/kill_storm.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

test("SIGTERM lets a guarded command finish, releases, and the other node's waiting guard is granted at once", async () => {
  const start = fleet(server.url, 20_000);
  const log = new SharedLog();
  await using alpha = await start("alpha");
  await using beta = await start("beta");
  const finishing = log.write(alpha, 100);
  await log.writtenBy("alpha");
  const waiting = log.write(beta, 20, ["--wait-lease", "--wait", "40s"]);
  await beta.logged("foreign");
  alpha.signal("SIGTERM");
  await alpha.logged("draining");
  const refused = guardOne(alpha, ["true"]);
  expect(await refused.exited).toBe(75);
  expect(await finishing.exited).toBe(0);
  expect(await alpha.exited()).toBe(0);
  expect(await waiting.exited).toBe(0);
  expect(faultsOf(log.text)).toEqual([]);
  const released = alpha.log().find(({ event }) => event === "released")!;
  expect(released.clean).toBe(true);
  const granted = await beta.logged("granted");
  expect(Date.parse(granted.time) - Date.parse(released.time)).toBeLessThan(3_000);
  expect(beta.log().some(({ event }) => event === "grace")).toBe(false);
});

test("--drain bounds it: a command that does not end in time keeps its lease to the deadline, no longer", async () => {
  const ttlMs = 4_000;
  const start = fleet(server.url, ttlMs);
  const log = new SharedLog();
  await using alpha = await start("alpha", { flags: ["--drain", "500ms"] });
  await using beta = await start("beta", { flags: ["--grace", "0s"] });
  const endless = log.writeStubbornly(alpha, 100_000);
  await log.writtenBy("alpha");
  const waiting = log.write(beta, 20, ["--wait-lease", "--wait", "40s"]);
  await beta.logged("foreign");
  const startedMs = performance.now();
  expect(await alpha.end("SIGTERM")).toBe(0);
  expect(performance.now() - startedMs).toBeLessThan(ttlMs);
  expect(await waiting.exited).toBe(0);
  expect(await endless.exited).toBe(79);
  expect(faultsOf(log.text)).toEqual([]);
});

test("further signals neither hurry nor spoil a shutdown", async () => {
  const start = fleet(server.url, 10_000);
  const log = new SharedLog();
  await using alpha = await start("alpha");
  await using beta = await start("beta");
  const finishing = log.write(alpha, 150);
  await log.writtenBy("alpha");
  const waiting = log.write(beta, 20, ["--wait-lease", "--wait", "40s"]);
  await beta.logged("foreign");
  for (const signal of ["SIGTERM", "SIGTERM", "SIGINT", "SIGHUP", "SIGTERM"] as const) {
    alpha.signal(signal);
    await Bun.sleep(20);
  }
  await alpha.logged("draining_already");
  expect(await finishing.exited).toBe(0);
  // Until the very end: also when the socket and the coordinator are being closed.
  let status: number | null = null;
  void alpha.exited().then((exit) => status = exit);
  while (status === null) {
    alpha.signal("SIGTERM");
    await Bun.sleep(1);
  }
  expect(status as number).toBe(0);
  expect(await waiting.exited).toBe(0);
  expect(faultsOf(log.text)).toEqual([]);
});

test("a store asked about for the first time during a shutdown is not acquired", async () => {
  const start = fleet(server.url, 10_000);
  await using alpha = await start("alpha");
  const client = await alpha.client();
  const { token } = await client.call("guard", { store: "one" });
  alpha.signal("SIGTERM");
  await alpha.logged("draining");
  await client.call("watch", { stores: ["two"] });
  expect((await client.call("held", { store: "three" })).held).toBe(false);
  await client.call("release", { token });
  expect(await alpha.exited()).toBe(0);
  const acquired = alpha.log().filter(({ event }) => event === "acquired");
  expect(acquired.map(({ store }) => store)).toEqual(["one"]);
});

test("SIGTERM while the coordinator does not answer ends within --drain", async () => {
  const own = await NatsServer.start();
  try {
    const start = fleet(own.url, 10_000);
    await using alpha = await start("alpha", { flags: ["--drain", "1s"] });
    await (await alpha.client()).call("held", { store: "one" });
    own.freeze();
    const startedMs = performance.now();
    expect(await alpha.end("SIGTERM")).toBe(0);
    expect(performance.now() - startedMs).toBeLessThan(8_000);
  } finally {
    await own.stop();
  }
});

test("a lease that is lost during a shutdown is not told as released", async () => {
  await using own = await NatsServer.start();
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: own.url,
    flags: ["--ttl", "3s", "--drain", "5s"],
  });
  for (const store of ["busy", "idle"]) agent.makeStore(store);
  const client = await agent.client();
  await client.call("held", { store: "idle" });
  await client.call("guard", { store: "busy" });
  agent.signal("SIGTERM");
  await agent.logged("released", { store: "idle" });
  const { stdout } = await runClient(agent, ["--check"]);
  expect(stdout).toMatch(
    /^unhealthy; draining: this agent is shutting down: 1 grant may finish, for at most \ds more, /,
  );
  own.freeze();
  await agent.logged("lost", { store: "busy" });
  expect(await agent.logged("drained")).toMatchObject({ released: 1, remaining: 1, level: "warn" });
  expect(await agent.exited()).toBe(0);
  own.thaw();
}, 30_000);

test("stepdown waits for a grant longer than --for, then gives the store up", async () => {
  const start = fleet(server.url, 10_000);
  await using alpha = await start("alpha");
  await using beta = await start("beta");
  const client = await alpha.client();
  const { token } = await client.call("guard", { store: "one" });
  const stepped = client.call("stepdown", { store: "one", for_ms: 100 });
  await until(
    "it refuses",
    async () => (await refusal(client.call("guard", { store: "one" }))).kind === "draining",
  );
  // Longer than it asked to stay away.
  await Bun.sleep(300);
  expect((await refusal(client.call("guard", { store: "one" }))).kind).toBe("draining");
  const waiting = (await beta.client()).call("guard", {
    store: "one",
    wait_ms: 20_000,
    wait_lease: true,
  });
  await beta.logged("foreign");
  await client.call("release", { token });
  expect(await stepped).toEqual({ released: 1, remaining: 0 });
  expect((await waiting).node).toBe("beta");
});

test("a grant is told expiring, then lost, and never revives (consul#4902)", async () => {
  const ttlMs = 3_000;
  const own = await NatsServer.start();
  try {
    await using alpha = await fleet(own.url, ttlMs)("alpha");
    const client = await alpha.client();
    const seen = notificationsOf(client);
    const { token, epoch } = await client.call("guard", { store: "one", follow: true });
    await until("it is renewed", () => seen.some(({ method }) => method === "renewed"));
    own.freeze();
    await until("it is lost", () => seen.some(({ method }) => method === "lost"));
    const last = seen.slice(-2).map(({ method }) => method);
    expect(last).toEqual(["expiring", "lost"]);
    own.thaw();
    await until(
      "the store is held again",
      async () => (await client.call("held", { store: "one" })).held,
    );
    expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("lost");
    expect((await refusal(client.call("release", { token }))).kind).toBe("lost");
    expect((await refusal(client.call("verify", { token, store: "one" }))).kind).toBe("no_token");
    expect((await client.call("guard", { store: "one" })).epoch).toBeGreaterThan(epoch);
    expect(seen.filter(({ method }) => method === "lost")).toHaveLength(1);
  } finally {
    await own.stop();
  }
});

test("verify proves a long grant again and again, past many TTLs", async () => {
  const ttlMs = 1_500;
  await using alpha = await fleet(server.url, ttlMs)("alpha");
  const client = await alpha.client();
  const { token, epoch, revision } = await client.call("guard", { store: "one" });
  let last = revision;
  const untilMs = performance.now() + 3 * ttlMs;
  while (performance.now() < untilMs) {
    const proof = await client.call("verify", { token, store: "one" });
    expect(proof.epoch).toBe(epoch);
    // Each is a write of its own, sent after it was asked for.
    expect(proof.revision).toBeGreaterThan(last);
    last = proof.revision;
    await Bun.sleep(ttlMs / 4);
  }
  await client.call("release", { token });
});

test("no notification follows a release, however renewals go (lockgate#10)", async () => {
  const ttlMs = 1_500;
  const own = await NatsServer.start();
  try {
    await using alpha = await fleet(own.url, ttlMs)("alpha");
    const client = await alpha.client();
    const seen = notificationsOf(client);
    const released = [];
    for (let i = 0; i < 20; i++) {
      const { token } = await client.call("guard", { store: "one", follow: true });
      await client.call("release", { token });
      released.push(token);
    }
    const before = seen.length;
    await alpha.logged("renewed", {}, alpha.log().length);
    own.freeze();
    await alpha.logged("lost");
    await client.call("status", {});
    expect(seen.slice(before)).toEqual([]);
  } finally {
    await own.stop();
  }
});

test(
  "what cannot be released, because the coordinator is away, is not told as released",
  async () => {
    await using own = await NatsServer.start();
    const start = fleet(own.url, 60_000);
    await using alpha = await start("alpha", { flags: ["--drain", "5s"] });
    for (const store of ["one", "two"]) alpha.makeStore(store);
    const client = await alpha.client();
    for (const store of ["one", "two"]) await client.call("held", { store });
    own.freeze();
    expect(await client.call("stepdown", { store: "one" }))
      .toEqual({ released: 0, remaining: 1, aging: 1 });
    const { status, stdout } = await runClient(alpha, ["stepdown", "two"]);
    expect([status, stdout]).toEqual([
      1,
      expect.stringMatching(/^gave up 1 store without a release/),
    ]);
    expect(await alpha.logged("left", { store: "one" })).toMatchObject({ level: "info" });
    expect(alpha.log().some(({ event }) => event === "released")).toBe(false);
    own.thaw();
  },
  60_000,
);

test("a shutdown tells how many leases it left to age out", async () => {
  await using own = await NatsServer.start();
  const start = fleet(own.url, 60_000);
  await using alpha = await start("alpha", { flags: ["--drain", "8s"] });
  await (await alpha.client()).call("held", { store: "one" });
  await own.kill();
  await alpha.logged("problem", { check: "coordinator" });
  expect(await alpha.end("SIGTERM")).toBe(0);
  expect(alpha.log().find(({ event }) => event === "drained"))
    .toMatchObject({ level: "warn", released: 0, remaining: 1, aging: 1 });
});

test("without a coordinator there is nothing to age out: all is released", async () => {
  await using alone = await RealAgent.start({ node: "alone" });
  const client = await alone.client();
  expect((await client.call("held", { store: "one" })).held).toBe(true);
  expect(await client.call("stepdown", { all: true })).toEqual({ released: 1, remaining: 0 });
});

test("stepdown of all stores is one of those, too, that become known only then", async () => {
  const start = fleet(server.url, 10_000);
  await using alpha = await start("alpha");
  await using beta = await start("beta");
  for (const store of ["early", "late"]) alpha.makeStore(store);
  const client = await alpha.client();
  await client.call("held", { store: "early" });
  await client.call("stepdown", { all: true, for_ms: 3_600_000 });
  for (const store of ["early", "late", "named"]) {
    if (store === "named") await client.call("stepdown", { store, for_ms: 3_600_000 });
    const { kind, error } = await refusal(client.call("guard", { store }));
    expect([store, kind]).toEqual([store, "draining"]);
    expect(error.retryAfterMs).toBeGreaterThan(3_000_000);
    expect((await client.call("held", { store })).held).toBe(false);
  }
  beta.makeStore("late");
  await (await beta.client()).call("guard", { store: "late" });
  const { stdout } = await runClient(alpha, ["stepdown", "another", "--for", "2m"]);
  expect(stdout).toBe(
    "nothing to release: this node holds none of them, and takes none of them for 2m\n",
  );
});

test("stepdown of all stores is over when its time is: new ones are held again", async () => {
  await using alone = await RealAgent.start({ node: "alone" });
  const client = await alone.client();
  await client.call("stepdown", { all: true, for_ms: 500 });
  expect((await client.call("held", { store: "late" })).held).toBe(false);
  await until("it is held", async () => (await client.call("held", { store: "late" })).held);
});
