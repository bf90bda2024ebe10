/** A guarded command at a terminal, as a person sees it. Needs python3 and bash. */
import { expect, test } from "bun:test";
import { AGENT, FakeAgent } from "../../support/agent_under_test.ts";
import { onTerminal, PROMPT, SHELL, type Step } from "../../support/terminal.ts";

const CTRL_C = "\x03";
const CTRL_D = "\x04";
const CTRL_Z = "\x1a";

/** Runs a program on a terminal, where it finds the agent. */
function type(
  agent: FakeAgent,
  program: readonly string[],
  steps: readonly Step[],
): Promise<string> {
  const env = { ZIT_AGENT_SOCKET: agent.socket, AGENT };
  return onTerminal(program, steps, { env, cwd: agent.directory });
}

/** Not by dash, which can miss a key between the two (it finishes the fork first). */
const GO = "echo go; exec sleep 100";
const GUARD = [AGENT, "guard", "store", "--"];

test("guard() gives the command the terminal: it reads what is typed, and is in the foreground", async () => {
  await using agent = await FakeAgent.start(60_000);
  const script = `ps -o stat= -p $$; read line < /dev/tty; echo "got $line"; exit 6`;
  const screen = await type(agent, [...GUARD, "sh", "-c", script], [
    ["expect", "S.*\\+"],
    ["send", "hello\n"],
    ["expect", "got hello"],
  ]);
  expect(screen).toContain("exit 6");
});

test("guard() exits with 130 when the command is interrupted by key", async () => {
  await using agent = await FakeAgent.start(60_000);
  const screen = await type(agent, [...GUARD, "bash", "-c", GO], [
    ["expect", "go"],
    ["send", CTRL_C],
  ]);
  expect(screen).toContain("exit 130");
});

test("guard() under a shell: stops by key with the command, goes on by fg, gives the terminal back", async () => {
  await using agent = await FakeAgent.start(60_000);
  await type(agent, SHELL, [
    ...PROMPT,
    ["send", `${GUARD.join(" ")} sh -c 'echo g''o; exec cat'\n`],
    ["expect", "go\\r\\n"],
    ["send", "one\n"],
    ["expect", "one\\r\\none\\r\\n"],
    ["send", CTRL_Z],
    ["expect", "Stopped"],
    ["expect", "ready\\$ "],
    ["send", "echo shell $((40+2))\n"],
    ["expect", "shell 42"],
    ["send", "fg\n"],
    ["expect", "exec cat'\\r\\n"],
    ["send", "two\n"],
    ["expect", "two\\r\\ntwo\\r\\n"],
    ["send", CTRL_D],
    ["expect", "ready\\$ "],
    ["send", "echo status $?\n"],
    ["expect", "status 0"],
    ["send", "exit\n"],
  ]);
});

test("guard() in the background stops when the command reads the terminal, and goes on by fg", async () => {
  await using agent = await FakeAgent.start(60_000);
  await type(agent, SHELL, [
    ...PROMPT,
    ["send", `${GUARD.join(" ")} head -n 1 &\n`],
    ["expect", "ready\\$ "],
    // The shell tells of it before its next prompt.
    ["send", "while ! jobs | grep -q Stopped; do sleep 0.1; done; jobs; echo seen\n"],
    ["expect", "Stopped[^\\n]*head"],
    ["expect", "\\nseen"],
    ["send", "fg\n"],
    ["expect", "head -n 1\\r\\n"],
    ["send", "three\n"],
    ["expect", "three\\r\\nthree\\r\\n"],
    ["expect", "ready\\$ "],
    ["send", "exit\n"],
  ]);
});

test("guard() in a pipeline leaves the terminal to it until the command reads it", async () => {
  await using agent = await FakeAgent.start(60_000);
  const pager = `sh -c 'cat > /dev/null; read key < /dev/tty; echo "key $key"'`;
  await type(agent, SHELL, [
    ...PROMPT,
    ["send", `${GUARD.join(" ")} echo text | ${pager}\n`],
    ["send", "q\n"],
    ["expect", "key q"],
    ["expect", "ready\\$ "],
    ["send", `${GUARD.join(" ")} sh -c 'read w < /dev/tty; echo word $w' | cat\n`],
    ["send", "wanted\n"],
    ["expect", "word wanted"],
    ["expect", "ready\\$ "],
    ["send", "exit\n"],
  ]);
});

test("guard() in a script: the key that interrupts the command interrupts the script", async () => {
  await using agent = await FakeAgent.start(60_000);
  await Bun.write(agent.path("script"), `${GUARD.join(" ")} bash -c '${GO}'\necho on\n`);
  const screen = await type(agent, SHELL, [
    ...PROMPT,
    ["send", "dash script\n"],
    ["expect", "go"],
    ["send", CTRL_C],
    ["expect", "ready\\$ "],
    ["send", "exit\n"],
  ]);
  expect(screen).not.toContain("\non\r");
});

test("guard() waiting tells a person at the terminal who is in the way", async () => {
  await using agent = await FakeAgent.start(60_000);
  await agent.order({ delayMs: 1_500 });
  await type(agent, [AGENT, "guard", "store", "--wait", "10s", "--", "echo", "done"], [
    ["expect", "waiting up to 10s for store: node-2 holds it \\(10.0.0.2:7000\\)"],
    ["expect", "done"],
  ]);
});

test("guard() waiting in the background leaves the line to the shell", async () => {
  await using agent = await FakeAgent.start(60_000);
  await agent.order({ delayMs: 2_500 });
  const screen = await type(agent, SHELL, [
    ...PROMPT,
    ["send", `$AGENT guard store --wait 10s -- echo do""ne &\n`],
    ["expect", "ready\\$ "],
    ["send", "wait; echo a''fter\n"],
    ["expect", "done"],
    ["expect", "after"],
    ["send", "exit\n"],
  ]);
  expect(screen).not.toContain("waiting up to");
});

test("guard() waiting says why in one row also when the store has a long code", async () => {
  await using agent = await FakeAgent.start(60_000);
  await agent.order({ delayMs: 1_500 });
  const store = `first${"-".repeat(118)}-last`;
  await type(agent, [AGENT, "guard", store, "--wait", "10s", "--", "echo", "done"], [
    ["expect", "waiting up to 10s for first-+…-+last: node-2 holds it"],
    ["expect", "done"],
  ]);
});
