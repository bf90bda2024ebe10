import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { AGENT, RealAgent } from "../support/real_agent.ts";

const VARIABLE = "BUN_JSC_minEdenToOldGenerationRatio";

/** What the kernel tells of a process. */
function fact(agent: RealAgent, name: string): string {
  return readFileSync(`/proc/${agent.pid}/${name}`, "latin1");
}

function settings(agent: RealAgent): string[] {
  return fact(agent, "environ").split("\0").filter((each) => each.startsWith(VARIABLE));
}

test("an agent sets its collector by becoming itself: the process that was started, as it was started", async () => {
  await using agent = await RealAgent.start({ node: "n", flags: ["--address", "a b"] });
  expect(settings(agent)).toEqual([`${VARIABLE}=0.65`]);
  expect(fact(agent, "comm")).toBe("agent\n");
  const [name, command, ...flags] = fact(agent, "cmdline").split("\0").slice(0, -1);
  expect([name, command]).toEqual([AGENT, "run"]);
  expect(flags.slice(-2)).toEqual(["--address", "a b"]);
  // A client that does not read its answer must not end the agent: SIGPIPE is number 13.
  const ignored = BigInt(`0x${/^SigIgn:\s+(\w+)/m.exec(fact(agent, "status"))![1]}`);
  expect(ignored >> 12n & 1n).toBe(1n);
});

test("a collector that the operator set stays so", async () => {
  await using agent = await RealAgent.start({ node: "n", env: { [VARIABLE]: "0.4" } });
  expect(settings(agent)).toEqual([`${VARIABLE}=0.4`]);
});
