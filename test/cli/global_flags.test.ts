/** Flags of the program itself stand before a command's name; behind it they are unknown. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import manifest from "../../package.json" with { type: "json" };
import { EXEC_LOCKED_COMMAND } from "../../src/cli/guard/exec_locked_command.ts";
import { createProgram } from "../../src/cli/program.ts";
import { FakeAgent, runAgent } from "../support/agent_under_test.ts";
import { RealAgent, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";

const COMMANDS = createProgram({ env: {}, exit: 0 }).commands.map((each) => each.name())
  .filter((name) => name !== EXEC_LOCKED_COMMAND); // has its own way to tell a wrong use

test.each(COMMANDS.flatMap((name) => [[name, "--check"], [name, "--version"]]))(
  "agent %s %s is used wrongly: exit 64, and says how it is written",
  async (name, flag) => {
    const result = await runAgent([name, "s", flag]);
    expect(result).toMatchObject({ exit: 64, stdout: "" });
    expect(result.stderr).toContain(
      `unknown option '${flag}'. It stands alone: \`agent ${flag}\`.`,
    );
    expect(result.stderr.trim().split("\n")).toHaveLength(1);
  },
);

test("agent guard STORE --version -- COMMAND runs nothing and does not pass for success", async () => {
  using dir = tempDir();
  await using agent = await FakeAgent.start();
  const ran = join(dir.path, "ran");
  for (const flag of ["--version", "--check", "--json"]) {
    expect((await agent.run(["guard", "s", flag, "--", "touch", ran])).exit).toBe(64);
  }
  expect(existsSync(ran)).toBe(false);
  // Behind `--` they are the command's own.
  const { exit, stdout } = await agent.run(["guard", "s", "--", "echo", "--version", "--check"]);
  expect([exit, stdout]).toEqual([0, "--version --check\n"]);
});

test("agent stepdown STORE --check steps nothing down", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  agent.makeStore("one");
  expect((await runClient(agent, ["guard", "one", "--", "true"])).status).toBe(0);
  expect((await runClient(agent, ["stepdown", "one", "--check"])).status).toBe(64);
  expect((await runClient(agent, ["held", "one"])).status).toBe(0);
});

test.each([
  [["--version", "status"]],
  [["--version", "held", "s"]],
  [["--check", "status"]],
  [["--version", "--chekc"]],
  [["--version", "--check"]],
  [["nope", "--version"]],
  [["nope", "--check"]],
])("agent %p is used wrongly: no command is run, and none passes for success", async (args) => {
  const result = await runAgent(args);
  expect(result).toMatchObject({ exit: 64, stdout: "" });
  expect(result.stderr).toStartWith("agent: ");
});

test("agent --version, with --json and --socket in any order", async () => {
  const text = `${manifest.version}\n`;
  const json = `${JSON.stringify({ version: manifest.version })}\n`;
  for (
    const [args, stdout] of [
      [["--version"], text],
      [["--version", "--socket", "/x"], text],
      [["--socket", "/x", "--version"], text],
      [["--json", "--version"], json],
      [["--version", "--json"], json],
      [["--socket=/x", "--json", "--version"], json],
      [["--version", "--json", "--socket", "/x"], json],
    ] as const
  ) {
    expect([args, await runAgent(args)])
      .toEqual([args, { exit: 0, signal: null, stdout, stderr: "" }]);
  }
});

test("agent --check, with --json and --socket in any order", async () => {
  await using agent = await FakeAgent.start();
  const { socket } = agent;
  for (
    const args of [
      ["--check", "--socket", socket],
      ["--socket", socket, "--check"],
      [`--socket=${socket}`, "--check"],
    ]
  ) {
    expect([args, (await runAgent(args)).stdout]).toEqual([
      args,
      "healthy: node-1 holds 3 stores\n",
    ]);
  }
  for (
    const args of [
      ["--check", "--json", "--socket", socket],
      ["--json", "--socket", socket, "--check"],
      ["--socket", socket, "--check", "--json"],
    ]
  ) {
    expect(JSON.parse((await runAgent(args)).stdout)).toMatchObject({ healthy: true });
  }
});
