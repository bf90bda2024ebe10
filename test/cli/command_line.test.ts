/** The built program's words and exit statuses. */
import { expect, test } from "bun:test";
import { checkLine } from "../../src/cli/check_line.ts";
import { createProgram } from "../../src/cli/program.ts";
import { AGENT, FakeAgent, finish, runAgent } from "../support/agent_under_test.ts";
import { RealAgent, runClient } from "../support/real_agent.ts";

const NO_AGENT = "/nonexistent/agent.sock";
const COMMANDS = createProgram({ env: {}, exit: 0 }).commands.map((each) => each.name());

test.each([
  [["hold"], "unknown command 'hold'. Did you mean"],
  [["frobnicate"], "unknown command 'frobnicate'. See `agent --help`"],
  [["held", "s", "--jsno"], "unknown option '--jsno'. Did you mean --json?"],
  [["run", "--nat", "x"], "unknown option '--nat'. Did you mean --nats?"],
  [["held"], "missing required argument 'store'. See `agent help held`"],
  [["holder", "a", "b"], "too many arguments"],
  [["guard", "s", "ls", "-l"], "Put `--` before the command to run."],
  [["guard", "s", "--wait", "5", "--", "true"], "say its unit, as in 5s or 5ms"],
  [["guard", "s", "echo", "--", "x"], '"echo" is neither'],
  [["guard", "s", "t", "--", "true"], "Put one store before `--`, and the command behind it"],
  [["guard", "--", "true"], "Put the store before `--`, and the command behind it."],
  [["guard", "s", "--"], "Put the store before `--`, and the command behind it."],
  [["guard", "s", "--wait", "--", "true"], "'--wait <DUR>' argument missing"],
  [["held", "-x"], "unknown option '-x'"],
  [["completions", "tcsh"], "bash, zsh and fish"],
  [["run"], "Neither --nats nor --standalone"],
  [["stepdown"], "Name one store, or say --all"],
  [["stepdown", "s", "--all"], "Name one store, or say --all"],
  [["exec-locked"], "See `agent help exec-locked`"],
  [["exec-locked", "--report", "3", "--help"], "See `agent help exec-locked`"],
  [["--json", "exec-locked", "--", "true"], "Put no options before `exec-locked`"],
  [["holder", "a..b"], "is no store code"],
  [["holder", "a".repeat(200)], `"${"a".repeat(15)}…${"a".repeat(16)}" is no store code`],
  [["holder", "a".repeat(129)], "; this has 129."],
  [["help", "nope"], "unknown command 'nope'. See `agent --help`"],
  [["help", "hold"], "unknown command 'hold'. Did you mean"],
  [["--socket", "", "status"], 'Cannot reach an agent at "": the path of the socket is empty'],
  [["status", "--socket", `/${"x".repeat(107)}`], "the path has 108 bytes, a socket's at most 107"],
  [["--check", "--socket", ""], "the path of the socket is empty"],
  [["watch", "--socket", ""], "the path of the socket is empty"],
  [["run", "--standalone", "x", "--socket", ""], "--socket is empty"],
  [["run", "--nats", "n1", "--node", "nö"], "--node must be 1 to 128 printable ASCII characters"],
  [["run", "--nats", "n1", "--node", "nö", "--print-config"], "--node must be"],
  [["run", "--standalone", "x", "--address", "a\tb"], "--address must be 1 to 1024 printable"],
  [["run", "--standalone", "x", "--lock-path", "/l/{store}/"], "--lock-path: Cannot use the lock"],
])("agent %p is used wrongly: exit 64, one line that helps", async (args, why) => {
  const result = await runAgent(args);
  expect(result).toMatchObject({ exit: 64, stdout: "" });
  expect(result.stderr).toStartWith("agent: ");
  expect(result.stderr).toContain(why);
  expect(result.stderr.trim().split("\n")).toHaveLength(1);
});

test("agent alone prints its help to stderr and exits with 64", async () => {
  const result = await runAgent([]);
  expect(result).toMatchObject({ exit: 64, stdout: "" });
  expect(result.stderr).toContain("Usage: agent COMMAND");
});

test.each([
  [["--help"]],
  [["-h"]],
  [["help"]],
  ...COMMANDS.flatMap((name) => [[["help", name]], [[name, "--help"]], [[name, "-h"]]]),
])(
  "agent %p helps: exit 0, on stdout, with examples or statuses",
  async (args) => {
    const result = await runAgent(args);
    expect(result).toMatchObject({ exit: 0, stderr: "" });
    expect(result.stdout).toMatch(/^Usage: agent/);
    expect(result.stdout).toMatch(/Examples?:|Exit statuses/);
    // A terminal of 80 columns breaks no line, nor does it need a wider one.
    const wide = result.stdout.split("\n").filter((line) => Bun.stringWidth(line) > 80);
    expect(wide).toEqual([]);
  },
);

test.each(
  ["held", "holder", "history"].map((name) => [[name, "s"]]).concat([
    [["leases"]],
    [["status"]],
    [["watch"]],
    [["stepdown", "s"]],
  ]),
)("agent %p exits with 69 when there is no agent, and says what to do", async (args) => {
  const result = await runAgent([...args, "--socket", NO_AGENT]);
  expect(result).toMatchObject({ exit: 69, stdout: "" });
  expect(result.stderr).toContain("start the agent");
});

test("agent --check: 69 in one line on stdout when there is no agent", async () => {
  const result = await runAgent(["--check", "--socket", NO_AGENT]);
  expect(result).toMatchObject({ exit: 69, stderr: "" });
  expect(result.stdout).toMatch(/^unreachable: .*\n$/);
});

test("agent --check: 1 when the agent answers, but will not have us", async () => {
  await using agent = await FakeAgent.start();
  await agent.order({ statusRefusal: { kind: "limit", message: "too many\nconnections" } });
  expect(await agent.run(["--check"]))
    .toMatchObject({ exit: 1, stdout: "unhealthy: too many connections\n", stderr: "" });
});

test("agent --check: 0 when healthy, 1 with each failing check named, one line", async () => {
  await using agent = await FakeAgent.start();
  expect(await agent.run(["--check"]))
    .toMatchObject({ exit: 0, stdout: "healthy: node-1 holds 3 stores\n" });
  const checks = [
    { name: "coordinator", ok: false, message: "not connected\nfor 5s" },
    { name: "renewal", ok: false, message: "overdue" },
    { name: "bucket", ok: true, message: "" },
  ];
  await agent.order({ status: { healthy: false, checks, warnings: ["memory storage"] } });
  expect(await agent.run(["--check"])).toMatchObject({
    exit: 1,
    stdout:
      "unhealthy; coordinator: not connected for 5s; renewal: overdue; warning: memory storage\n",
  });
  expect(JSON.parse((await agent.run(["--check", "--json"])).stdout))
    .toMatchObject({ healthy: false, checks });
});

test("agent held: 0 if all are held, 1 otherwise", async () => {
  await using agent = await FakeAgent.start();
  await agent.order({ held: ["a", "b"] });
  expect(await agent.run(["held", "a"])).toMatchObject({ exit: 0, stdout: "a: held\n" });
  expect(await agent.run(["held", "a", "b"])).toMatchObject({ exit: 0 });
  expect(await agent.run(["held", "a", "c"]))
    .toMatchObject({ exit: 1, stdout: "a: held\nc: not held\n" });
  expect(await agent.run(["--json", "held", "a", "c"]))
    .toMatchObject({ exit: 1, stdout: '{"held":{"a":true,"c":false}}\n' });
  expect((await agent.run(["held", "__proto__"])).exit).toBe(1);
});

test("agent holder tells where writes go", async () => {
  await using agent = await FakeAgent.start();
  expect((await agent.run(["holder", "s"])).stdout).toBe(
    "s: held by node-2 (10.0.0.2:7000, epoch 7, since 2026-01-02T03:04:05.000Z)\n",
  );
  expect(JSON.parse((await agent.run(["holder", "s", "--json"])).stdout))
    .toMatchObject({ state: "other", node: "node-2" });
});

test("agent history of a store that nobody held: said on stderr, an empty list as JSON", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  expect(await runClient(agent, ["history", "never"])).toEqual({
    status: 0,
    stdout: "",
    stderr: "agent: no tenure of never is on record: no node has held it since records are kept\n",
  });
  expect(await runClient(agent, ["history", "never", "--json"]))
    .toEqual({ status: 0, stdout: '{"tenures":[]}\n', stderr: "" });
});

test("agent history without a coordinator: each tenure once, as it ended", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  agent.makeStore("one");
  // It is acquired again once the first step-down is over, and not after the second.
  for (const away of ["1ms", "1h"]) {
    const guard = await runClient(agent, ["guard", "one", "--wait", "10s", "--", "true"]);
    expect(guard.status).toBe(0);
    expect((await runClient(agent, ["stepdown", "one", "--for", away])).status).toBe(0);
  }
  const [, ...rows] = (await runClient(agent, ["history", "one"])).stdout.trimEnd().split("\n");
  expect(rows).toHaveLength(2);
  expect(rows[0]).toMatch(/ stepdown +none +-$/);
  expect(rows[1]).toMatch(/ stepdown +not known +-$/);
});

test("agent --check: 1 when the agent does not let us in, 77 from any other command", async () => {
  await using agent = await RealAgent.start({ node: "alone", flags: ["--allow-uid", "4711"] });
  const check = await runClient(agent, ["--check"]);
  expect([check.status, check.stderr]).toEqual([1, ""]);
  expect(check.stdout).toMatch(/^unhealthy: .*\n$/);
  expect((await runClient(agent, ["status"])).status).toBe(77);
});

test("agent status shows the reason of a standalone agent, and counts in words that fit", async () => {
  await using agent = await FakeAgent.start();
  const counts = { held: 1, waiting: 0, foreign: 0, grants: 1, waiters: 0, connections: 1 };
  await agent.order({ status: { mode: "standalone", warnings: ["unguarded: a test"], counts } });
  const { stdout } = await agent.run(["status"]);
  expect(stdout).toContain("1 grant, 0 waiting, 1 connection\n");
  expect(stdout).toContain("  warning unguarded: a test\n");
  // What is wrong comes first.
  const check = (name: string, ok: boolean) => ({ name, ok, message: `of ${name}` });
  await agent.order({
    status: { healthy: false, checks: [check("good", true), check("bad", false)], warnings: ["w"] },
  });
  expect((await agent.run(["status"])).stdout)
    .toEndWith("\n  FAIL bad: of bad\n  warning w\n  ok   good: of good\n");
});

test("agent leases gets every page", async () => {
  await using agent = await FakeAgent.start();
  const { leases } = JSON.parse((await agent.run(["leases", "--json"])).stdout);
  expect(leases.map((each: { store: string }) => each.store)).toEqual(["alpha", "beta"]);
  expect((await agent.run(["leases"])).stdout.split("\n")).toHaveLength(4);
});

test("agent status, and the same as JSON", async () => {
  await using agent = await FakeAgent.start();
  const { stdout } = await agent.run(["status"]);
  expect(stdout).toStartWith("zit lease agent: serving, healthy\n");
  expect(stdout).toContain("up 1m1s");
  expect(JSON.parse((await agent.run(["status", "--json"])).stdout)).toMatchObject({
    ttl_ms: 3_000,
  });
});

test("the socket: --socket before and behind the command's name wins over ZIT_AGENT_SOCKET", async () => {
  await using agent = await FakeAgent.start();
  const env = { ZIT_AGENT_SOCKET: NO_AGENT };
  for (const args of [["--socket", agent.socket, "status"], ["status", "--socket", agent.socket]]) {
    expect((await runAgent(args, { env })).exit).toBe(0);
  }
  const { exit, stderr } = await runAgent(["status"], { env });
  expect(exit).toBe(69);
  expect(stderr).toContain("name its socket by --socket or ZIT_AGENT_SOCKET");
});

test("agent guard takes --socket before and behind its name", async () => {
  await using agent = await FakeAgent.start();
  const command = ["--", "sh", "-c", "echo $ZIT_AGENT_SOCKET"];
  const before = await runAgent(["--socket", agent.socket, "guard", "s", ...command]);
  const behind = await runAgent(["guard", "s", "--socket", agent.socket, ...command]);
  expect([before.stdout, behind.stdout]).toEqual([`${agent.socket}\n`, `${agent.socket}\n`]);
});

test("a reader that went away is no error", async () => {
  const child = Bun.spawn({
    cmd: ["bash", "-c", `set -o pipefail; "$0" run --help | head -n 1 > /dev/null`, AGENT],
    env: { PATH: process.env.PATH! },
    stderr: "pipe",
  });
  expect(await new Response(child.stderr).text()).toBe("");
  expect(await child.exited).toBe(0);
});

test("a result that cannot be written whole is an error: 74", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  await runClient(agent, ["held", "one"]);
  const commands = [["leases"], ["leases", "--json"], ["--check"], ["watch"], ["status"]];
  for (const args of [...commands, ["--help"], ["completions", "bash"]]) {
    const child = Bun.spawn({
      cmd: ["sh", "-c", '"$0" "$@" >/dev/full', AGENT, ...args],
      env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
      stdout: "ignore",
      stderr: "pipe",
    });
    const stderr = await new Response(child.stderr).text();
    expect([args, await child.exited, stderr]).toEqual([
      args,
      74,
      "agent: Cannot write the result: no space left on device (ENOSPC)\n",
    ]);
  }
});

test("agent watch ends when nobody reads it any more", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  const child = Bun.spawn({
    cmd: ["bash", "-c", 'set -o pipefail; "$0" watch one | head -n 1', AGENT],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdout: "pipe",
    stderr: "pipe",
  });
  const ended = finish(child);
  // Changes, one of which meets the closed pipe.
  while (child.exitCode === null) {
    await runClient(agent, ["held", "one"]);
    await runClient(agent, ["stepdown", "one", "--for", "1ms"]);
  }
  expect(await ended).toMatchObject({ exit: 0, stderr: "" });
});

test("checkLine() stays one line", () => {
  const line = checkLine(
    {
      healthy: false,
      checks: [{ name: "a", ok: false, message: "x\r\ny" }],
      warnings: ["w\n"],
    } as unknown as Parameters<typeof checkLine>[0],
  );
  expect(line).toBe("unhealthy; a: x y; warning: w ");
});
