/** Step-downs: the newest counts, one can be ended, and whoever asks is told of those in force. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { AgentError } from "../../src/client/mod.ts";
import { fleet } from "../support/fleet.ts";
import { freePort, NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

const HOUR_MS = 3_600_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

type Client = Awaited<ReturnType<RealAgent["client"]>>;

/** How long guards of the store are refused yet, in milliseconds; 0: they are granted. */
async function refusedFor(client: Client, store: string): Promise<number> {
  const answer = await client.call("guard", { store }).catch((error: unknown) => error);
  if (answer instanceof AgentError) {
    expect(answer.kind).toBe("draining");
    return answer.retryAfterMs!;
  }
  await client.call("release", { token: (answer as { token: string }).token });
  return 0;
}

async function granted(client: Client, store: string): Promise<void> {
  await until(`${store} is granted`, async () => await refusedFor(client, store) === 0);
}

async function alone(flags: readonly string[] = []) {
  const agent = await RealAgent.start({ node: "alpha", flags });
  for (const store of ["p", "q", "late"]) agent.makeStore(store);
  return Object.assign(agent, { asks: await agent.client() });
}

test("stepdown shortens an earlier one of the store, and 0 ends it", async () => {
  await using agent = await alone();
  const { asks } = agent;
  await asks.call("stepdown", { store: "p", for_ms: HOUR_MS });
  expect(await refusedFor(asks, "p")).toBeGreaterThan(HOUR_MS / 2);
  const shorter = await runClient(agent, ["stepdown", "p", "--for", "1s"]);
  expect(shorter.stdout).toEndWith("takes none of them for 1s\n");
  expect(await refusedFor(asks, "p")).toBeLessThanOrEqual(1_000);
  await granted(asks, "p");
  await asks.call("stepdown", { store: "p", for_ms: HOUR_MS });
  const ended = await runClient(agent, ["stepdown", "p", "--for", "0s"]);
  expect(ended).toEqual({
    status: 0,
    stdout: "nothing to release; this node takes stores again when asked\n",
    stderr: "",
  });
  expect(await refusedFor(asks, "p")).toBe(0);
});

test("stepdown of all stores takes the place of all before it, longer and shorter", async () => {
  await using agent = await alone();
  const { asks } = agent;
  await asks.call("stepdown", { store: "p", for_ms: 2 * HOUR_MS });
  await asks.call("stepdown", { all: true, for_ms: HOUR_MS });
  expect(await refusedFor(asks, "p")).toBeLessThanOrEqual(HOUR_MS);
  expect(await refusedFor(asks, "q")).toBeGreaterThan(HOUR_MS / 2);
  await asks.call("stepdown", { all: true, for_ms: 1 });
  for (const store of ["p", "q", "late"]) await granted(asks, store);
  await asks.call("stepdown", { all: true, for_ms: HOUR_MS });
  expect((await runClient(agent, ["stepdown", "--all", "--for", "0s"])).status).toBe(0);
  for (const store of ["p", "q", "late", "p"]) expect(await refusedFor(asks, store)).toBe(0);
});

test("stepdown of a store changes what one of all stores means for it, known before or not", async () => {
  await using agent = await alone(["--interest", "100ms"]);
  const { asks } = agent;
  await asks.call("stepdown", { all: true, for_ms: HOUR_MS });
  for (const store of ["p", "late"]) {
    await asks.call("stepdown", { store, for_ms: 0 });
    expect(await refusedFor(asks, store)).toBe(0);
  }
  // Forgotten, and known anew: it is an exception still.
  await until("both are forgotten", async () => {
    const { leases } = await asks.call("leases", {});
    return leases.every(({ store }) => !["p", "late"].includes(store));
  });
  expect(await refusedFor(asks, "p")).toBe(0);
  expect(await refusedFor(asks, "q")).toBeGreaterThan(HOUR_MS / 2);
  const { stdout } = await runClient(agent, ["--check"]);
  expect(stdout).toContain("step down from every store but p, late until ");
});

test("stepdown for 0 gives a store up, and takes it again when asked", async () => {
  await using alpha = await fleet(server.url, 10_000)("alpha");
  const client = await alpha.client();
  const { token, epoch } = await client.call("guard", { store: "one" });
  await client.call("release", { token });
  const { stdout } = await runClient(alpha, ["stepdown", "one", "--for", "0s"]);
  expect(stdout).toBe("released 1 store: other nodes may take them now, and this one, too\n");
  expect((await client.call("guard", { store: "one" })).epoch).toBeGreaterThan(epoch);
});

test("stepdown ends one that still waits for grants: the write goes on, and others can follow", async () => {
  await using agent = await alone(["--drain", "1s"]);
  const { asks } = agent;
  const { token } = await asks.call("guard", { store: "p" });
  const first = asks.call("stepdown", { all: true, for_ms: HOUR_MS });
  await until("it refuses", async () => await refusedFor(asks, "q") > 0);
  const ended = await runClient(agent, ["stepdown", "--all", "--for", "0s"]);
  expect(ended.status).toBe(1);
  expect(ended.stdout).toEndWith("did not finish in time: those this node keeps\n");
  expect(await first).toEqual({ released: 0, remaining: 1, overtaken: true });
  await asks.call("verify", { token, store: "p" });
  for (const store of ["q", "late"]) expect(await refusedFor(asks, store)).toBe(0);
  await asks.call("release", { token });
  expect(await refusedFor(asks, "p")).toBe(0);
  expect((await asks.call("status", {})).healthy).toBe(true);
});

test.each<[string, { store: string } | { all: true }, boolean]>([
  ["--all", { all: true }, true],
  ["--all", { store: "p" }, true],
  ["p", { store: "p" }, true],
  ["p", { all: true }, true],
  ["p", { store: "q" }, false],
])(
  "stepdown %s does not promise what %j took the place of meanwhile: %p",
  async (what, then, overtaken) => {
    await using agent = await alone();
    const { asks } = agent;
    const { token } = await asks.call("guard", { store: "p" });
    const first = runClient(agent, ["stepdown", what, "--for", "1h"]);
    await until("it is in force", async () => {
      const { leases } = await asks.call("leases", {});
      return leases.some(({ store, stepped_down_until: until }) => store === "p" && until);
    });
    // On one connection: the grant ends after that was ordered.
    const second = asks.call("stepdown", { ...then, for_ms: 0 });
    await asks.call("release", { token });
    const { status, stdout } = await first;
    expect(status).toBe(0);
    expect(stdout.includes("counts by now")).toBe(overtaken);
    expect(stdout.includes("1h")).toBe(!overtaken);
    expect((await second).overtaken).toBeUndefined();
  },
);

test("stepdown refuses a time that no timer can wait, and changes nothing", async () => {
  await using agent = await alone();
  const { kind, error } = await refusal(
    agent.asks.call("stepdown", { store: "p", for_ms: 1e300 }),
  );
  expect([kind, error.message]).toEqual([
    "invalid",
    expect.stringContaining("for_ms must be at most 2147483647 (24.8 days)"),
  ]);
  expect(await refusedFor(agent.asks, "p")).toBe(0);
});

test("a refusal tells hours and minutes, and retry_after_ms the exact time", async () => {
  await using agent = await alone();
  await agent.asks.call("stepdown", { store: "p", for_ms: HOUR_MS });
  const { error } = await refusal(agent.asks.call("guard", { store: "p" }));
  // The test may be late by minutes, not by an hour.
  expect(error.message).toMatch(/, for another (1h|\d+m(\d+s)?) or so; try again then$/);
  expect(error.retryAfterMs).toBeGreaterThan(1_000);
  expect(error.retryAfterMs).toBeLessThanOrEqual(HOUR_MS);
});

const UNTIL = String.raw`until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;

test("stepdown of all stores fails the check `stepdown`, until it is ended", async () => {
  const http = `127.0.0.1:${await freePort()}`;
  await using agent = await alone(["--http", http]);
  const told = new RegExp(
    `stepdown: an operator had this node step down from every store ${UNTIL}; end it with ` +
      "`agent stepdown --all --for 0s`",
  );
  await agent.asks.call("stepdown", { all: true, for_ms: HOUR_MS });
  const { status, stdout } = await runClient(agent, ["--check"]);
  expect([status, stdout]).toEqual([1, expect.stringMatching(told)]);
  expect((await runClient(agent, ["status"])).stdout).toMatch(told);
  const page = await fetch(`http://${http}/readyz`);
  expect([page.status, await page.text()]).toEqual([503, expect.stringMatching(told)]);
  const metrics = await (await fetch(`http://${http}/metrics`)).text();
  expect(metrics).toContain('zit_agent_check_failing{check="stepdown"} 1\n');
  await runClient(agent, ["stepdown", "--all", "--for", "0s"]);
  const after = await runClient(agent, ["--check"]);
  expect([after.status, after.stdout]).toEqual([0, expect.not.stringContaining("step down")]);
  expect((await fetch(`http://${http}/readyz`)).status).toBe(200);
});

test("stepdown of a store is told by status, --check and leases; the agent is healthy", async () => {
  await using agent = await alone();
  const { asks } = agent;
  await asks.call("held", { store: "q" });
  const before = await runClient(agent, ["leases"]);
  expect(before.stdout).not.toContain("STEPPED DOWN");
  await asks.call("stepdown", { store: "p", for_ms: HOUR_MS });
  const told = new RegExp(
    `an operator had this node step down from p ${UNTIL}; end it with \`agent stepdown STORE --for 0s\``,
  );
  const { status, stdout } = await runClient(agent, ["--check"]);
  expect([status, stdout]).toEqual([
    0,
    expect.stringMatching(/^healthy: .*; warning: an operator/),
  ]);
  expect(stdout).toMatch(told);
  expect((await runClient(agent, ["status"])).stdout).toMatch(told);
  const { leases } = await asks.call("leases", {});
  const marked = leases.map((each) => [each.store, each.stepped_down_until !== undefined]);
  expect(marked).toEqual([["p", true], ["q", false]]);
  const soonMs = Date.parse(leases[0]!.stepped_down_until!) - Date.now();
  expect(soonMs).toBeGreaterThan(HOUR_MS / 2);
  expect(soonMs).toBeLessThanOrEqual(HOUR_MS + 1_000);
  const { stdout: listed } = await runClient(agent, ["leases"]);
  const [header, p, q] = listed.split("\n");
  expect(header).toEndWith("  STEPPED DOWN UNTIL");
  expect(p).toMatch(/^p +free .* \d{4}-\S+Z$/);
  expect(q).toEndWith("  -");
  await asks.call("stepdown", { store: "p", for_ms: 0 });
  expect((await runClient(agent, ["leases"])).stdout).not.toContain("STEPPED DOWN");
  expect((await asks.call("status", {})).warnings.join()).not.toContain("step down");
});

test("while grants may finish, status tells how long the step-down lasts after that", async () => {
  await using agent = await alone();
  const { asks } = agent;
  const { token } = await asks.call("guard", { store: "p" });
  const stepped = asks.call("stepdown", { all: true, for_ms: HOUR_MS });
  const line = await until("it fails", async () => {
    const { checks } = await asks.call("status", {});
    return checks.find(({ name }) => name === "stepdown")?.message;
  });
  expect(line).toContain("from every store for 1h from when its grants have finished; ");
  await asks.call("release", { token });
  expect(await stepped).toEqual({ released: 1, remaining: 0 });
});

test("a shutdown is no step-down, and none takes its place", async () => {
  await using agent = await alone();
  const { asks } = agent;
  const { token } = await asks.call("guard", { store: "p" });
  agent.signal("SIGTERM");
  await agent.logged("draining");
  await asks.call("stepdown", { store: "late", for_ms: 0 });
  const all = asks.call("stepdown", { all: true, for_ms: 0 });
  expect((await asks.call("held", { store: "late" })).held).toBe(false);
  const { checks, warnings } = await asks.call("status", {});
  const failing = checks.filter(({ ok }) => !ok).map(({ name }) => name);
  expect([failing, warnings.join()]).toEqual([
    ["draining"],
    expect.not.stringContaining("step down"),
  ]);
  await asks.call("release", { token });
  await all.catch(() => null); // The end of the agent may come first.
  expect(await agent.exited()).toBe(0);
  const taken = agent.log().filter(({ event }) => event === "acquired").map(({ store }) => store);
  expect(taken).toEqual(["p"]);
});
