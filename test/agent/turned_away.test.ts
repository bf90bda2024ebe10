/**
 * An agent that has all the connections it takes: whoever comes then is told so, never cut off.
 */
import { expect, test } from "bun:test";
import { RealAgent, runClient } from "../support/real_agent.ts";

const TEST_MS = 120_000;
const CONNECTIONS = 1_024;

test("every command is told `limit` when the agent has all the connections it takes", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  agent.makeStore("one");
  for (let i = 0; i < CONNECTIONS; i++) await (await agent.client()).call("held", { store: "one" });
  const commands = [
    { args: ["guard", "one", "--", "true"], exit: 75 },
    // The agent answers, and could not guard writes of whoever asks.
    { args: ["--check"], exit: 1 },
    { args: ["status"], exit: 75 },
  ];
  for (const { args, exit } of commands) {
    // Some at once, so that several are turned away in one turn of the agent's event loop.
    for (let round = 0; round < 5; round++) {
      const ended = await Promise.all(Array.from({ length: 10 }, () => runClient(agent, args)));
      for (const { status, stdout, stderr } of ended) {
        expect([status, stdout + stderr]).toEqual([
          exit,
          expect.stringContaining("has 1024 connections already; close one, or raise"),
        ]);
      }
    }
  }
}, TEST_MS);
