/** A guarded command at a terminal, and the signals that `agent guard` gets, with real agents. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fleet, guardOne } from "../support/fleet.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, type RealAgent, runClient } from "../support/real_agent.ts";
import { isRunning } from "../support/running.ts";
import { onTerminal, PROMPT, SHELL, type Step } from "../support/terminal.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 3_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** Runs `program` on a terminal, where it finds the agent. */
function type(
  agent: RealAgent,
  program: readonly string[],
  steps: readonly Step[],
): Promise<string> {
  return onTerminal(program, steps, { env: { ZIT_AGENT_SOCKET: agent.socket }, cwd: agent.dir });
}

const GUARD = [AGENT, "guard", "one", "--"];

async function isFree(agent: RealAgent): Promise<boolean> {
  const { counts } = await (await agent.client()).call("status", {});
  return counts.grants === 0 &&
    (await runClient(agent, ["guard", "one", "--", "true"])).status === 0;
}

test("a job that is stopped by key for longer than the TTL keeps the store, and goes on by fg", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const screen = await type(alpha, SHELL, [
    ...PROMPT,
    ["send", `${GUARD.join(" ")} sh -c 'echo g''o; exec cat'\n`],
    ["expect", "go\\r\\n"],
    ["send", "one\n"],
    ["expect", "one\\r\\none\\r\\n"],
    ["send", "\x1a"],
    ["expect", "Stopped"],
    ["expect", "ready\\$ "],
    ["wait", String(1.5 * TTL_MS / 1_000)],
    ["send", `${AGENT} guard one -- true; echo sta''tus $?\n`],
    ["expect", "status 75"],
    ["send", "fg\n"],
    ["expect", "exec cat'\\r\\n"],
    ["send", "two\n"],
    ["expect", "two\\r\\ntwo\\r\\n"],
    ["send", "\x04"],
    ["expect", "ready\\$ "],
    ["send", "echo sta''tus $?\n"],
    ["expect", "status 0"],
    ["send", "exit\n"],
  ]);
  // The program's own path may have the word in it.
  expect(screen.replaceAll(AGENT, "agent")).not.toContain("lease");
  expect(await isFree(alpha)).toBe(true);
});

test("the interrupt key ends the command with 130 and frees the store", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const screen = await type(alpha, [...GUARD, "bash", "-c", "echo go; exec sleep 100"], [
    ["expect", "go"],
    ["send", "\x03"],
  ]);
  expect(screen).toContain("exit 130");
  expect(await isFree(alpha)).toBe(true);
});

test("a command in the foreground sees the terminal's size, and hears of another", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  // Not a shell: in a trap it may miss the next signal.
  const script = `
import os, signal, sys
def tell(what):
    columns, rows = os.get_terminal_size(0)
    os.write(1, f"{what} {rows} {columns}\\n".encode())
signal.signal(signal.SIGWINCH, lambda *_: tell("now"))
tell("first")
sys.stdin.readline()
sys.exit(7)`;
  const screen = await type(alpha, [...GUARD, "python3", "-c", script], [
    ["expect", "first \\d+ \\d+"],
    ["resize", "33 77"],
    ["expect", "now 33 77"],
    ["resize", "44 88"],
    ["expect", "now 44 88"],
    ["send", "\n"],
  ]);
  expect(screen).toContain("exit 7");
});

/** Writes down each signal as it comes, until it is told to end. */
const LISTENER = `
import os, signal, sys, time
out = open(sys.argv[1], "a", buffering=1)
for name in sys.argv[3:]: signal.signal(getattr(signal, name), lambda n, _: out.write(signal.Signals(n).name + "\\n"))
out.write("ready\\n")
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
sys.exit(5)`;

/** In this order: after a stop comes what continues. */
const SIGNALS = [
  "SIGTERM",
  "SIGINT",
  "SIGHUP",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
  "SIGALRM",
  "SIGWINCH",
  "SIGTSTP",
  "SIGCONT",
] as const;

test("each signal that agent guard gets reaches the command as it is, once", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const [log, end] = [join(alpha.dir, "signals"), join(alpha.dir, "end")];
  const heard = () => existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : [];
  const guard = guardOne(alpha, ["python3", "-c", LISTENER, log, end, ...SIGNALS]);
  // The file is there before anything is in it.
  await until("it listens", () => heard()[0] === "ready");
  for (const [i, signal] of SIGNALS.entries()) {
    guard.kill(signal);
    await until(`${signal} is heard`, () => heard().length >= 2 + i);
  }
  // The end of the command comes behind whatever else was on its way.
  await Bun.write(end, "");
  expect(await guard.exited).toBe(5);
  expect(heard()).toEqual(["ready", ...SIGNALS]);
});

test("a command that does not hear SIGTSTP is stopped by it, and continued by SIGCONT", async () => {
  await using alpha = await fleet(server.url, TTL_MS)("alpha");
  const path = join(alpha.dir, "pid");
  const guard = guardOne(alpha, [
    "sh",
    "-c",
    `echo $$ > $0.tmp; mv $0.tmp $0; exec sleep 100`,
    path,
  ]);
  const pid = await until("it runs", () => existsSync(path) && Number(readFileSync(path, "utf8")));
  const isStopped = () => /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  guard.kill("SIGTSTP");
  await until("it is stopped", isStopped);
  guard.kill("SIGCONT");
  await until("it goes on", () => !isStopped());
  guard.kill("SIGTERM");
  expect(await guard.exited).toBe(143);
  expect(isRunning(pid)).toBe(false);
});
