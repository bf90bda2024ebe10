/** Operators' commands against a real agent, piped and at a terminal. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runAgent } from "../support/agent_under_test.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { onTerminal, type Step } from "../support/terminal.ts";
import { until } from "../support/wait.ts";

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

/** Defaults that are not a value of their own. */
const NOT_SET: Readonly<Record<string, string>> = { http: "off", grace: "TTL" };

/** What is on the screen of a command at a terminal after it took these steps. */
function atTerminal(
  agent: RealAgent,
  args: readonly string[],
  steps: readonly Step[],
  terminal = "xterm",
): Promise<string> {
  return onTerminal([AGENT, ...args], steps, {
    env: { ZIT_AGENT_SOCKET: agent.socket, TERM: terminal, COLUMNS: "200" },
  });
}

/** Waits for the step `touch` of a terminal, whose end without it is a failure. */
async function shownTo(agent: RealAgent, terminal: Promise<string>): Promise<void> {
  const file = join(agent.dir, "shown");
  await Promise.race([until("it is shown", () => existsSync(file)), terminal]);
  rmSync(file);
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
    ["touch", join(agent.dir, "shown")],
    ["expect", "my turn"],
  ]);
  await shownTo(agent, shown);
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

test(
  "a guard that waits for the lock file does not name itself, and at the end who has it",
  async () => {
    await using agent = await start("alpha", "locked");
    const file = join(agent.makeStore("one"), "lease.lock");
    writeFileSync(file, "", { mode: 0o640 });
    // Without a child, which would have the lock, too.
    const other = Bun.spawn(["flock", "--no-fork", file, "sleep", "60"], { stdout: "ignore" });
    try {
      const { stderr } = await until("it is locked", async () => {
        const once = await runClient(agent, ["guard", "one", "--", "true"]);
        return once.status === 75 && once;
      });
      expect(stderr).toMatch(/lease\.lock is locked by process \d+ \((flock|sleep)/);
      const shown = atTerminal(agent, ["guard", "one", "--wait", "30s", "--", "echo", "my turn"], [
        ["expect", "waiting up to 30s for one: its lock file is locked by another process\r"],
        ["touch", join(agent.dir, "shown")],
        ["expect", "my turn"],
      ]);
      await shownTo(agent, shown);
      const second = await runClient(agent, ["guard", "one", "--", "true"]);
      expect(second.stderr).toContain(
        "locked by another process, and other guards wait for it, too",
      );
      other.kill();
      await shown;
    } finally {
      other.kill();
    }
  },
  60_000,
);

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
    /^released 1 store: .* for 6s\nnot released 1 store, .* keeps until they do/,
  );
  const none = await runClient(agent, ["stepdown", "one"]);
  expect(none.stdout).toContain("nothing to release");
});

test("stepdown at a terminal tells which process is in the way, and how long yet", async () => {
  await using agent = await start("alpha", "in-the-way", ["--drain", "20s"]);
  for (const store of ["one", "two"]) agent.makeStore(store);
  const client = await agent.client();
  const guard = async (store: string) => (await client.call("guard", { store })).token;
  const [one, two] = [await guard("one"), await guard("two")];
  const stepsDown = (args: readonly string[], where: string, released: string) =>
    atTerminal(agent, ["stepdown", ...args], [
      ["expect", `${where}: process ${process.pid} writes for at most 1\\d\\.\\d s more`],
      ["touch", join(agent.dir, "shown")],
      ["expect", `\x1b\\[Kreleased ${released}: `],
    ]);
  const first = stepsDown(["one", "--for", "100ms"], "waiting for one", "1 store");
  await shownTo(agent, first);
  await client.call("release", { token: one });
  await first;
  const again = await until("it is taken again", () => guard("one").catch(() => null));
  const both = stepsDown(["--all"], "waiting for one and 1 more", "2 stores");
  await shownTo(agent, both);
  for (const token of [again, two]) await client.call("release", { token });
  await both;
}, 60_000);

test("at a dumb terminal the progress is one line, and no control characters", async () => {
  await using agent = await start("alpha", "dumb");
  agent.makeStore("one");
  const client = await agent.client();
  const { token } = await client.call("guard", { store: "one" });
  const shown = atTerminal(agent, ["guard", "one", "--wait", "30s", "--", "echo", "my turn"], [
    ["expect", `agent: waiting up to 30s for one: process ${process.pid}`],
    ["touch", join(agent.dir, "shown")],
    ["expect", "my turn"],
  ], "dumb");
  await shownTo(agent, shown);
  await Bun.sleep(2_000); // in which it would look again
  await client.call("release", { token });
  const screen = await shown;
  expect(screen).not.toContain("\x1b");
  expect(screen.match(/waiting up to/g)).toHaveLength(1);
}, 40_000);

test(
  "history tells how old, how long, how it ended, and what the next one owed for it",
  async () => {
    await using alpha = await start("alpha", "history", [...SHORT, "--address", "http://alpha"]);
    await using beta = await start("beta", "history", SHORT);
    await using gamma = await start("gamma", "history", SHORT);
    for (const agent of [alpha, beta, gamma]) agent.makeStore("one");
    const guard = (agent: RealAgent) =>
      runClient(agent, ["guard", "one", "--wait-lease", "--wait", "40s", "--", "true"]);
    await guard(alpha);
    await alpha.end("SIGTERM");
    await guard(beta);
    await beta.end("SIGKILL");
    expect(await guard(gamma)).toMatchObject({ status: 0 });
    const { stdout } = await runClient(gamma, ["history", "one"]);
    const [header, ...rows] = stdout.trimEnd().split("\n");
    expect(header).toMatch(/^EPOCH +NODE +ACQUIRED +AGE +HELD +END +GRACE +ADDRESS$/);
    const time = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;
    const age = String.raw`(?:less than 1s|\d+s)`;
    for (
      const [i, row] of [
        `gamma +${time} +${age} +${age} +holds it now +owed +-`,
        `beta +${time} +${age} +up to \\d+s +not released +none +-`,
        `alpha +${time} +${age} +${age} +shutdown +not known +http://alpha`,
      ].entries()
    ) expect(rows[i]).toMatch(new RegExp(`^\\d+ +${row}$`));
    expect(rows).toHaveLength(3);
    const json = JSON.parse((await runClient(gamma, ["history", "one", "--json"])).stdout);
    expect(json.tenures.map((each: object) => Object.keys(each))).toEqual([
      ["node", "incarnation", "address", "epoch", "acquired_at"],
      ["node", "incarnation", "address", "epoch", "acquired_at"],
      ["node", "incarnation", "address", "epoch", "acquired_at", "released_at", "reason"],
    ]);
    const empty = await runClient(gamma, ["leases", "--node", "nobody"]);
    expect(empty).toMatchObject({ status: 0, stdout: "" });
    expect(empty.stderr).toContain("no such stores");
    const prefixed = await runClient(gamma, ["leases", "--prefix", "nothing/"]);
    expect(prefixed.stderr).toContain("no such stores");
  },
  60_000,
);

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

test("in an outage, each command says in one sentence what it cannot tell", async () => {
  await using own = await NatsServer.start();
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: own.url,
    flags: ["--ttl", "3s", "--log-format", "json"],
  });
  agent.makeStore("one");
  await runClient(agent, ["guard", "one", "--", "true"]);
  await own.kill();
  await agent.logged("problem", { check: "coordinator" });
  const told = async (...args: string[]) => {
    const { status, stderr } = await runClient(agent, args);
    // One sentence: what an operator may do about the coordinator is told by status.
    expect([args, stderr.trimEnd().split(/\.\s/)]).toEqual([args, [expect.any(String)]]);
    return [status, stderr.slice(0, stderr.indexOf(":", "agent: ".length))];
  };
  expect(await told("guard", "other", "--", "true"))
    .toEqual([69, "agent: Cannot guard store other"]);
  expect(await told("holder", "other")).toEqual([69, "agent: Cannot tell who holds store other"]);
  expect(await told("history", "one")).toEqual([69, "agent: Cannot tell who held store one"]);
  expect(await told("leases"))
    .toEqual([0, "agent: the coordinator cannot be reached"]);
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
  const help = (await runAgent(["run", "--help"])).stdout.replace(/\n {20,}/g, " ");
  const flags = [...help.matchAll(/^ {2}--([\w-]+)/gm)].map(([, name]) => name!)
    .filter((name) => !["print-config", "json", "help"].includes(name));
  expect([...settings.keys()].toSorted()).toEqual(flags.toSorted());
  // The defaults that the help tells are those in force.
  const told = [...help.matchAll(/^ {2}--([\w-]+) .*?(?:\(default: (\S+?)\)|(\w+) \(default\))/gm)]
    .map(([, name, value, word]) => [name!, value ?? word!] as const)
    .filter(([name]) => settings.get(name)!.source === "default");
  expect(told.length).toBeGreaterThan(8);
  for (const [name, value] of told) {
    // Where the default is what the bucket or another setting says, there is no value yet.
    const inForce = settings.get(name)!.value ?? NOT_SET[name];
    expect([name, inForce]).toEqual([name, value]);
  }

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

test("run warns of a setting that is none, in its log and in --print-config, and goes on", async () => {
  const env = { ZIT_AGENT_STATEDIR: "/x" };
  const told = "ZIT_AGENT_STATEDIR is set, but there is no such setting, so it does nothing; " +
    "did you mean ZIT_AGENT_STATE_DIR?";
  await using agent = await RealAgent.start({ node: "alpha", env });
  expect(agent.log().filter(({ event }) => event === "settings"))
    .toMatchObject([{ level: "warn", message: told }]);
  const args = ["run", "--standalone", "x", "--print-config"];
  expect(await runAgent(args, { env })).toMatchObject({ exit: 0, stderr: `agent: ${told}\n` });
  const { stdout, stderr } = await runAgent([...args, "--json"], { env });
  expect([JSON.parse(stdout).warnings, stderr]).toEqual([[told], ""]);
});
