/** What an agent's polling for answers costs where none comes: a real agent, and the kernel's account of it. */
import { expect, test } from "bun:test";
import { cpuSeconds } from "../../scripts/benchmarks/usage.ts";
import { NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";

test("guards that wait for a foreign lease keep the agent awake no longer than they arrive", async () => {
  await using server = await NatsServer.start();
  await using alpha = await RealAgent.start({ node: "alpha", nats: server.url });
  await using beta = await RealAgent.start({ node: "beta", nats: server.url });
  alpha.makeStore("one");
  beta.makeStore("one");
  await (await alpha.client()).call("guard", { store: "one" });
  const clients = await Promise.all(Array.from({ length: 16 }, () => beta.client()));
  const wait = { store: "one", shared: true, wait_ms: 60_000, wait_lease: true };
  // The agent that is closed closes them.
  for (const client of clients) client.call("guard", wait).catch(() => {});
  await beta.logged("foreign", { store: "one" });
  const before = cpuSeconds(beta.pid);
  await Bun.sleep(1_000);
  expect(cpuSeconds(beta.pid) - before).toBeLessThan(0.5);
});
