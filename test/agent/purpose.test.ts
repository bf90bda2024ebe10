/** What a write is for is told to whoever waits for it, and in the log. */
import { expect, test } from "bun:test";
import { AGENT, RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { until } from "../support/wait.ts";

test("guard() refused for another's turn, or in a step-down, says what that writes for", async () => {
  await using agent = await RealAgent.start({ node: "alone", flags: ["--drain", "30s"] });
  agent.makeStore("one");
  const client = await agent.client();
  const refused = async () => (await refusal(client.call("guard", { store: "one" }))).error.message;

  const plain = await client.call("guard", { store: "one" });
  const turn = `Cannot guard store one: process ${process.pid} on this host has its turn`;
  expect(await refused()).toBe(`${turn}; wait longer or try again`);
  await client.call("release", plain);

  const purpose = "nightly\npush; of all\x1b[2J";
  const { token } = await client.call("guard", { store: "one", purpose });
  expect(await refused()).toBe(`${turn} (nightly push; of all [2J); wait longer or try again`);
  const granted = agent.log().filter(({ event }) => event === "granted");
  expect(granted.map((line) => line.purpose)).toEqual([undefined, "nightly push; of all [2J"]);

  const stepdown = runClient(agent, ["stepdown", "one", "--for", "1h"]);
  const message = await until("the store is stepped down from", async () => {
    const message = await refused();
    return message.includes("steps down") && message;
  });
  expect(message).toContain(
    `process ${process.pid} (nightly push; of all [2J) writes for at most `,
  );
  await client.call("release", { token });
  expect((await stepdown).status).toBe(0);
});

test("agent guard gives the name of its command", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  agent.makeStore("one");
  const inner = `"$AGENT" guard one -- true; echo $?`;
  const { stderr, stdout } = await runClient(agent, ["guard", "one", "--", "sh", "-c", inner], {
    env: { AGENT: AGENT },
  });
  expect(stdout).toBe("75\n");
  expect(stderr).toMatch(/process \d+ on this host has its turn \(sh\); try again, or wait/);
});
