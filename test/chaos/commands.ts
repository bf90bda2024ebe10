/**
 * Client commands of the agent, as an operator types them.
 * @module
 */
import { AGENT } from "../support/real_agent.ts";
import type { ChaosAgent } from "./agents.ts";

/** Runs a client command; resolves with its exit status, or null if it took too long. */
export async function runAgentCommand(
  agent: ChaosAgent,
  args: readonly string[],
): Promise<number | null> {
  const child = Bun.spawn({
    cmd: [AGENT, ...args],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
    timeout: 10_000,
    killSignal: "SIGKILL",
  });
  await child.exited;
  return child.exitCode;
}
