/** Where a write goes that a node refuses: to another one, if there are any. */
import { expect, test } from "bun:test";
import { NatsServer } from "../support/nats.ts";
import { RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

/** An agent with a grant out, whose client is there, too. */
async function writing() {
  const agent = await RealAgent.start({ node: "alone", flags: ["--drain", "30s"] });
  for (const store of ["one", "two"]) agent.makeStore(store);
  const client = await agent.client();
  const { token } = await client.call("guard", { store: "one" });
  const refused = async (store: string) =>
    (await refusal(client.call("guard", { store }))).error.message;
  return { agent, client, token, refused };
}

test("stepdown() and its refusals name no other node when the agent is standalone", async () => {
  const { agent, client, token, refused } = await writing();
  await using _ = agent;
  await client.call("release", await client.call("guard", { store: "two" }));
  const stepdown = (...args: string[]) => runClient(agent, ["stepdown", ...args]);
  expect(await stepdown("two", "--for", "1h")).toMatchObject({
    status: 0,
    stdout: "released 1 store: nobody else takes them, as this agent is standalone; " +
      "this node leaves them alone for 1h\n",
  });
  expect(await refused("two")).toMatch(
    /: an operator had this node step down from it, for another \S+ or so; try again then$/,
  );
  const all = stepdown("--all", "--for", "1h");
  const message = await until("the store is stepped down from", async () => {
    const message = await refused("one");
    return message.includes(" writes for ") && message;
  });
  expect(message).toMatch(
    /writes for at most \S+ s more before this node steps down from it; try again \S+ after that$/,
  );
  const { stdout } = await runClient(agent, ["--check"]);
  expect(stdout).toMatch(/; stepdown: [^;]+; end it with `agent stepdown --all --for 0s`/);
  // The newest counts, and leaves nothing to wait for.
  const none = stepdown("--all", "--for", "0s");
  await until(
    "the newest counts",
    async () => (await refused("one")).endsWith(" steps down from it; try again then"),
  );
  await client.call("release", { token });
  for (const each of [all, none]) {
    expect((await each).stdout).toMatch(/^released 1 store: (nobody else|this node) takes them/m);
  }
  expect((await runClient(agent, ["status"])).stdout).not.toContain("another node");
  await stepdown("--all", "--for", "0s");
  await client.call("guard", { store: "one" });
});

test("a shutdown of an agent that is standalone names no other node", async () => {
  const { agent, client, token, refused } = await writing();
  await using _ = agent;
  agent.signal("SIGTERM");
  await agent.logged("draining");
  expect(await refused("two")).toEndWith(
    ": this agent is shutting down; try again when the agent is back",
  );
  expect((await runClient(agent, ["--check"])).stdout).toContain("released; start it again");
  await client.call("release", { token });
  expect(await agent.exited()).toBe(0);
});

test("a step-down and a shutdown name other nodes when there is a coordinator", async () => {
  await using server = await NatsServer.start();
  await using agent = await RealAgent.start({ node: "alpha", nats: server.url });
  for (const store of ["one", "two"]) agent.makeStore(store);
  const client = await agent.client();
  const refused = async (store: string) =>
    (await refusal(client.call("guard", { store }))).error.message;
  await client.call("stepdown", { store: "two", for_ms: 60_000 });
  expect(await refused("two")).toEndWith("; send the write to another node, or try again then");
  const { token } = await client.call("guard", { store: "one" });
  const all = runClient(agent, ["stepdown", "--all", "--for", "1m"]);
  await until(
    "who writes is told",
    async () => (await refused("one")).endsWith("; send the write to another node then"),
  );
  expect((await runClient(agent, ["--check"])).stdout).toContain(
    "; send writes to another node, or end it with ",
  );
  await client.call("release", { token });
  expect((await all).stdout).toStartWith("released 1 store: other nodes may take them now; ");
  await client.call("stepdown", { all: true, for_ms: 0 });
  const last = await client.call("guard", { store: "one" });
  agent.signal("SIGTERM");
  await agent.logged("draining");
  expect(await refused("one")).toContain("; send the write to another node, or try again when");
  expect((await runClient(agent, ["--check"])).stdout).toContain(
    "; send writes to another node, or start it again",
  );
  await client.call("release", { token: last.token });
  expect(await agent.exited()).toBe(0);
});
