/** What stands behind `--` is the command, all of it and nothing else; without it, nothing is run. */
import { chmodSync, existsSync, writeFileSync } from "node:fs";
import { expect, test } from "bun:test";
import { FakeAgent } from "../../support/agent_under_test.ts";

const HINT = "Put `--` before the command to run";

test.each([
  [["s", "cat", "./x.sh", "--shared"], HINT],
  [["s", "cat", "./x.sh", "--wait", "1s"], HINT],
  [["s", "--shared", "cat", "./x.sh"], HINT],
  [["s", "--unguarded", "why", "./x.sh"], HINT],
  [["s", "./x.sh", "--unguarded", "why"], HINT],
  [["s", "./x.sh"], HINT],
  [["s", "./x.sh", "one", "two"], HINT],
  [["s", "./x.sh", "-l"], HINT],
  [["s"], HINT],
  [["s", "--shared"], HINT],
  [["s", "./x.sh", "--", "./x.sh"], '"./x.sh" is neither'],
  [["s", "./x.sh", "--shared", "--", "true"], '"./x.sh" is neither'],
  [["s", "--socket", "--", "./x.sh"], "argument missing"],
  [["--socket", "--", "s", "--", "./x.sh"], "argument missing"],
  [["s", "--unguarded", "--", "./x.sh", "--", "./x.sh"], "argument missing"],
  [["s", "--kill-after", "--", "./x.sh"], "argument missing"],
  [["--", "s", "./x.sh"], "Put the store before `--`"],
  [["s", "--"], "and the command behind it"],
])("agent guard %p runs nothing: exit 64", async (args, why) => {
  await using agent = await program();
  const result = await agent.run(["guard", ...args]);
  expect(result).toMatchObject({ exit: 64, stdout: "" });
  expect(result.stderr).toContain(why);
  expect(result.stderr.trim().split("\n")).toHaveLength(1);
  expect(existsSync(agent.path("ran"))).toBe(false);
});

test("agent -- guard STORE COMMAND runs nothing: that `--` is not the guard's", async () => {
  await using agent = await program();
  for (const words of [["s"], ["s", "./x.sh"], ["s", "--", "./x.sh"]]) {
    expect((await agent.run(["--", "guard", ...words])).exit).toBe(64);
  }
  expect(existsSync(agent.path("ran"))).toBe(false);
});

test("agent guard takes a second `--` for the command's", async () => {
  await using agent = await FakeAgent.start();
  const words = ["--shared", "--", "", "-l"];
  expect((await agent.run(["guard", "s", "--", "printf", "<%s>", ...words])).stdout)
    .toBe("<--shared><--><><-l>");
  // A command of that name is looked for, as `env -- --` does.
  const second = await agent.run(["guard", "s", "--", "--", "true"]);
  expect(second).toMatchObject({ exit: 127, stdout: "" });
  expect(second.stderr).toContain("Cannot run --: there is no such command");
});

/** An agent in whose directory a program leaves a trace. */
async function program(): Promise<FakeAgent> {
  const agent = await FakeAgent.start();
  writeFileSync(agent.path("x.sh"), "#!/bin/sh\necho ran > ran\n");
  chmodSync(agent.path("x.sh"), 0o755);
  return agent;
}
