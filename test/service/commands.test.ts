/** Operators' commands against a real agent, piped and at a terminal. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runAgent } from "../support/agent_under_test.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const TERMINAL = join(import.meta.dir, "../support/terminal.py");
let nats: NatsServer;
beforeAll(async () => {
  nats = await NatsServer.start();
});
afterAll(() => nats.stop());

/** Long enough to be seen, and no longer: it is waited for. */
const SHORT = ["--ttl", "3s"];

function start(node: string, bucket: string, flags: readonly string[] = []): Promise<RealAgent> {
  return RealAgent.start({
    node,
    nats: nats.url,
    flags: ["--bucket", bucket, "--ttl", "6s", ...flags],
  });
}

/** What is on the screen of a command at a terminal after it took these steps. */
async function atTerminal(
  agent: RealAgent,
  args: readonly string[],
  steps: readonly (readonly [string, string])[],
): Promise<string> {
  const child = Bun.spawn({
    cmd: ["python3", TERMINAL, JSON.stringify(steps), AGENT, ...args],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket, TERM: "xterm", COLUMNS: "200" },
    stdout: "pipe",
  });
  const screen = await new Response(child.stdout).text();
  expect({ exit: await child.exited, screen }).toMatchObject({ exit: 0 });
  return screen;
}

test("status is in colour at a terminal, and plain when piped or with NO_COLOR", async () => {
  await using agent = await start("alpha", "colour");
  expect(await atTerminal(agent, ["status"], [["expect", "healthy"]])).toContain("\x1b[32mhealthy");
  const piped = await runClient(agent, ["status"], { env: { TERM: "xterm" } });
  expect(piped.stdout).not.toContain("\x1b");
  for (const name of ["coordinator", "bucket", "renewals", "lock_path", "state_dir"]) {
    expect(piped.stdout).toContain(` ${name}: `);
  }
  expect(piped.stdout).toContain(" server_version: ");
  expect(piped.stdout).toMatch(/ clock: within 0\.\d s of the coordinator's\n/);
});

test("a guard that waits at a terminal tells which process is in the way, and how long yet", async () => {
  await using agent = await start("alpha", "wait");
  agent.makeStore("one");
  const client = await agent.client();
  const { token } = await client.call("guard", { store: "one" });
  const shown = atTerminal(agent, ["guard", "one", "--wait", "30s", "--", "echo", "my turn"], [
    ["expect", `waiting up to 30s for one: process ${process.pid} on this host has its turn`],
    ["expect", "waiting up to 2\\ds for one"],
    ["expect", "my turn"],
  ]);
  await until("it waits", async () => (await client.call("status", {})).counts.waiters > 0);
  // Long enough for two looks, which the expectations above wait for.
  await Bun.sleep(2_000);
  await client.call("release", { token });
  // The line is gone before the command writes.
  expect(await shown).toContain("\r\x1b[Kmy turn");
});

test("a guard that waits for a grace tells how long it takes", async () => {
  await using alpha = await start("alpha", "grace", SHORT);
  await using beta = await start("beta", "grace", SHORT);
  for (const agent of [alpha, beta]) agent.makeStore("one");
  await (await alpha.client()).call("guard", { store: "one" });
  await alpha.end("SIGKILL");
  await atTerminal(beta, ["guard", "one", "--wait-lease", "--wait", "40s", "--", "echo", "over"], [
    ["expect", "for one: alpha holds it"],
    ["expect", "in its grace, \\ds more for its last holder"],
    ["expect", "over"],
  ]);
}, 40_000);

test("without a terminal nothing of it is written", async () => {
  await using agent = await start("alpha", "quiet");
  agent.makeStore("one");
  const client = await agent.client();
  const { token } = await client.call("guard", { store: "one" });
  const waiting = runClient(agent, ["guard", "one", "--wait", "30s", "--", "true"]);
  await until("it waits", async () => (await client.call("status", {})).counts.waiters > 0);
  await Bun.sleep(1_000); // twice as long as a terminal would be quiet
  await client.call("release", { token });
  expect(await waiting).toEqual({ status: 0, stdout: "", stderr: "" });
});

test("stepdown tells its effect: what is released, and what is not", async () => {
  await using agent = await start("alpha", "stepdown", ["--drain", "1s"]);
  for (const store of ["one", "two", "three"]) agent.makeStore(store);
  const client = await agent.client();
  await client.call("guard", { store: "three" });
  for (const store of ["one", "two"]) await runClient(agent, ["guard", store, "--", "true"]);
  const one = await runClient(agent, ["stepdown", "one", "--for", "2m"]);
  expect(one).toMatchObject({
    status: 0,
    stdout: "released 1 store: other nodes may take them now; this node leaves them alone for 2m\n",
  });
  const all = await runClient(agent, ["stepdown", "--all"]);
  expect(all.status).toBe(1);
  expect(all.stdout).toMatch(
    /^released 1 store: .* for 6s\nnot released 1 store, whose writes did/,
  );
  const none = await runClient(agent, ["stepdown", "one"]);
  expect(none.stdout).toContain("nothing to release");
});

test("leases filters by state, node and prefix", async () => {
  await using alpha = await start("alpha", "filters");
  await using beta = await start("beta", "filters");
  for (const store of ["team/one", "team/two"]) alpha.makeStore(store);
  beta.makeStore("team/two");
  beta.makeStore("three");
  await runClient(alpha, ["guard", "team/one", "--", "true"]);
  await runClient(beta, ["guard", "team/two", "--", "true"]);
  await runClient(beta, ["guard", "three", "--", "true"]);
  await runClient(alpha, ["guard", "team/two", "--", "true"]); // refused: beta's
  const codes = async (...args: string[]) => {
    const { stdout } = await runClient(alpha, ["leases", "--json", ...args]);
    return JSON.parse(stdout).leases.map(({ store }: { store: string }) => store);
  };
  expect(await codes()).toEqual(["team/one", "team/two"]);
  expect(await codes("--state", "held")).toEqual(["team/one"]);
  expect(await codes("--state", "other", "--prefix", "team/")).toEqual(["team/two"]);
  expect(await codes("--node", "beta")).toEqual(["team/two"]);
  expect(await codes("--node", "beta", "--state", "held")).toEqual([]);
  const wrong = await runClient(alpha, ["leases", "--state", "mine"]);
  expect(wrong).toMatchObject({ status: 64 });
  expect(wrong.stderr).toContain("held, self, other, free");
});

test("watch follows changes, with the time at a terminal", async () => {
  await using agent = await start("alpha", "watch");
  agent.makeStore("one");
  const screen = await atTerminal(agent, ["watch", "one"], [
    ["expect", "\\d\\d:\\d\\d:\\d\\d.* one .*held.* alpha"],
    ["send", "\x03"],
  ]);
  expect(screen).toContain("\x1b[32mheld");
});

test("run --print-config shows each setting and where it came from", async () => {
  using dir = tempDir();
  const env = { ZIT_AGENT_TTL: "20s", ZIT_AGENT_NODE: "from-env", ZIT_AGENT_DRAIN: "" };
  const args = ["run", "--nats", "nats://n1:4222,n2:4222", "--node", "from-flag", "--grace", "0"];
  const run = (more: readonly string[], extra = {}) =>
    runAgent([...args, "--print-config", ...more], {
      env: { ...env, XDG_RUNTIME_DIR: dir.path, ...extra },
    });
  const text = await run([]);
  expect(text).toMatchObject({ exit: 0, stderr: "" });
  const json = await run(["--json"]);
  const settings = new Map<string, { value: string | null; source: string }>(
    JSON.parse(json.stdout).settings.map((each: { name: string }) => [each.name, each]),
  );
  expect(settings.get("nats")).toMatchObject({ value: "nats://n1:4222,n2:4222", source: "--nats" });
  expect(settings.get("node")).toMatchObject({ value: "from-flag", source: "--node" });
  expect(settings.get("ttl")).toMatchObject({ value: "20s", source: "ZIT_AGENT_TTL" });
  expect(settings.get("grace")).toMatchObject({ value: "0", source: "--grace" });
  expect(settings.get("drain")).toMatchObject({ value: "30s", source: "default" });
  expect(settings.get("creds")).toMatchObject({ value: null, source: "default" });
  // Every flag that help knows, and nothing that would not be told.
  const help = (await runAgent(["run", "--help"])).stdout;
  const flags = [...help.matchAll(/^ {2}--([\w-]+)/gm)].map(([, name]) => name!)
    .filter((name) => !["print-config", "json", "help"].includes(name));
  expect([...settings.keys()].toSorted()).toEqual(flags.toSorted());

  mkdirSync(join(dir.path, "credentials"));
  writeFileSync(join(dir.path, "credentials/zit-agent.creds"), "secret\n");
  const passed = await run([], { CREDENTIALS_DIRECTORY: join(dir.path, "credentials") });
  expect(passed.stdout).toMatch(
    /^creds +\S+zit-agent\.creds +systemd credential zit-agent\.creds$/m,
  );
  expect(passed.stdout).not.toContain("secret");
  const named = await run(["--nkey", "/x"], {
    CREDENTIALS_DIRECTORY: join(dir.path, "credentials"),
  });
  expect(named.stdout).toMatch(/^creds +- +default$/m);
  // What is wrong is told instead.
  expect(await run(["--ttl", "soon"])).toMatchObject({ exit: 64, stdout: "" });
});
