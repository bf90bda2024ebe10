/** `--kill-after` of more than half of the TTL is cut, and says so. */
import { expect, test } from "bun:test";
import { FakeAgent } from "../../support/agent_under_test.ts";
import { RealAgent, runClient } from "../../support/real_agent.ts";
import { NatsServer } from "../../support/nats.ts";

const TTL_MS = 6_000;

test.each([
  ["1m", "agent: --kill-after 1m is cut to 3s, half of the lease's TTL of 6s\n"],
  ["3001ms", "agent: --kill-after 3s1ms is cut to 3s, half of the lease's TTL of 6s\n"],
  ["3s", ""],
  ["0s", ""],
  [null, ""],
])("guard() with --kill-after %p says on stderr: %p", async (wished, stderr) => {
  await using agent = await FakeAgent.start(TTL_MS);
  const flags = wished === null ? [] : ["--kill-after", wished];
  expect(await agent.guard("echo out", flags)).toMatchObject({ exit: 0, stdout: "out\n", stderr });
});

test("guard() names the TTL that is in force, and cuts nothing where there is no lease", async () => {
  await using server = await NatsServer.start();
  await using agent = await RealAgent.start({
    node: "alpha",
    nats: server.url,
    flags: ["--ttl", "5s"],
  });
  agent.makeStore("one");
  const guard = (...flags: string[]) =>
    runClient(agent, ["guard", "one", "--kill-after", "60s", ...flags, "--", "true"]);
  expect(await guard("--wait", "20s")).toMatchObject({
    status: 0,
    stderr: "agent: --kill-after 1m is cut to 2s500ms, half of the lease's TTL of 5s\n",
  });
  expect((await guard("--unguarded", "why")).stderr)
    .toBe('agent: UNGUARDED store=one reason="why"\n');
});
