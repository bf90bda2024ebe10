/** What a guarded command gets, what comes of its end, and what refusals say. */
import { expect, test } from "bun:test";
import { chmodSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { KINDS } from "../../../src/lease/errors.ts";
import type { Kind } from "../../../src/lease/errors.ts";
import { tryFlock } from "../../../src/sys/flock.ts";
import {
  AGENT,
  FakeAgent,
  finish,
  runAgent,
  until,
  untilLine,
} from "../../support/agent_under_test.ts";
import { RealAgent, runClient } from "../../support/real_agent.ts";

test("guard() passes stdin, stdout, stderr and the exit status through (consul#947)", async () => {
  await using agent = await FakeAgent.start();
  const args = ["guard", "store", "--", "sh", "-c", "cat; echo err >&2; exit 201"];
  expect(await agent.run(args, { stdin: "in\n" }))
    .toMatchObject({ exit: 201, stdout: "in\n", stderr: "err\n" });
});

test.each([["TERM", 143], ["KILL", 137], ["SEGV", 139]])(
  "guard() exits with 128+n when the command dies of SIG%s",
  async (signal, exit) => {
    await using agent = await FakeAgent.start();
    expect(await agent.guard(`kill -${signal} $$`)).toMatchObject({ exit, stderr: "" });
  },
);

test.each(["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"])(
  "guard() forwards SIG%s to the whole group",
  async (signal) => {
    await using agent = await FakeAgent.start(60_000);
    const trap = (text: string) => `trap 'echo > ${text}' ${signal}`;
    const script = `${trap("parent")}
(${trap("child")}; echo > ready.tmp; mv ready.tmp ready; while [ ! -e end ]; do sleep 0.02; done) &
while [ ! -e end ]; do sleep 0.02; done; wait; exit 9`;
    const child = agent.spawn(["guard", "store", "--", "bash", "-c", script]);
    await untilLine(agent.path("ready"));
    child.kill(`SIG${signal}` as NodeJS.Signals);
    const said = (name: string) => existsSync(agent.path(name));
    await until(() => said("parent") && said("child"));
    writeFileSync(agent.path("end"), "");
    await child.exited;
    expect(child.exitCode).toBe(9);
  },
);

test("guard() runs the command in a process group of its own, in the caller's session", async () => {
  await using agent = await FakeAgent.start();
  const { stdout } = await agent.guard(
    "ps -o pid=,pgid=,sid= -p $$; ps -o pid=,pgid=,sid= -p $PPID",
  );
  const [[pid, group, session], [, outerGroup, outerSession]] = stdout.trim().split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number)) as [number[], number[]];
  expect(group).toBe(pid);
  expect(group).not.toBe(outerGroup);
  expect(session).toBe(outerSession);
});

test("guard() tells the command its lease, and passes it the lock", async () => {
  await using agent = await FakeAgent.start();
  const script = "env | grep ^ZIT_ | sort; readlink /proc/$$/fd/$ZIT_LEASE_LOCK_FD; ls /proc/$$/fd";
  const { stdout } = await agent.guard(script);
  const lines = stdout.trim().split("\n");
  expect(lines.slice(0, 7)).toEqual([
    `ZIT_AGENT_SOCKET=${agent.socket}`,
    "ZIT_LEASE_EPOCH=41",
    expect.stringMatching(/^ZIT_LEASE_GUARDS=[0-9a-f]{16}\.[0-9a-f]{16}$/),
    "ZIT_LEASE_LOCK_FD=3",
    "ZIT_LEASE_NODE=node-1",
    "ZIT_LEASE_STORE=store",
    expect.stringMatching(/^ZIT_LEASE_TOKEN=[0-9a-f-]{36}$/),
  ]);
  expect(lines.slice(7)).toEqual([agent.path("store.lock"), "0", "1", "2", "3"]);
});

test("guard() keeps descriptors that the caller opened for the command", async () => {
  await using agent = await FakeAgent.start();
  writeFileSync(agent.path("input"), "mine\n");
  const child = Bun.spawn({
    cmd: [
      "bash",
      "-c",
      `exec 3< input; exec "$0" guard store -- sh -c 'cat <&3; echo $ZIT_LEASE_LOCK_FD'`,
      AGENT,
    ],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    cwd: agent.directory,
    stdout: "pipe",
    stderr: "pipe",
  });
  expect(await finish(child)).toMatchObject({ exit: 0, stdout: "mine\n4\n", stderr: "" });
});

test("guard() passes arguments and variables on byte for byte", async () => {
  await using agent = await FakeAgent.start();
  const inner = `printf '%s|%s|%s' "$1" "$2" "$LATIN" | od -An -tx1`;
  const child = Bun.spawn({
    cmd: [
      "bash",
      "-c",
      `LATIN=$'caf\\xe9' exec "$0" guard store -- sh -c '${inner.replaceAll("'", `'\\''`)}' sh ` +
      `$'\\xe9 x' ''`,
      AGENT,
    ],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdout: "pipe",
    stderr: "pipe",
  });
  const { stdout } = await finish(child);
  expect(stdout.trim()).toBe("e9 20 78 7c 7c 63 61 66 e9");
});

test("guard() lets what an outer guard set not leak into another command", async () => {
  await using agent = await FakeAgent.start();
  const env = { ZIT_LEASE_TOKEN: "stale", ZIT_LEASE_UNGUARDED: "stale", ZIT_LEASE_GUARDS: "outer" };
  const { stdout } = await agent.run(["guard", "store", "--", "env"], { env });
  expect(stdout).not.toContain("stale");
  expect(stdout).toMatch(/^ZIT_LEASE_GUARDS=outer:[0-9a-f]{16}\.[0-9a-f]{16}$/m);
});

test("guard() keeps signals ignored that the caller ignores (nohup)", async () => {
  await using agent = await FakeAgent.start();
  const show = "grep SigIgn /proc/self/status";
  const child = Bun.spawn({
    cmd: ["sh", "-c", `trap '' HUP; exec "$0" guard store -- ${show}`, AGENT],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdout: "pipe",
    stderr: "pipe",
  });
  const mask = parseInt((await finish(child)).stdout.split(/\s+/)[1]!.slice(-8), 16);
  expect(mask & 0xffff).toBe(1); // SIGHUP alone: not SIGPIPE, which the runtime ignores for itself
});

test("guard() leaves the limit of open files as its caller has it", async () => {
  await using agent = await FakeAgent.start();
  const child = Bun.spawn({
    cmd: ["bash", "-c", `ulimit -Sn 500; "$0" guard store -- bash -c 'ulimit -Sn'; exit $?`, AGENT],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdout: "pipe",
    stderr: "pipe",
  });
  expect(await finish(child)).toMatchObject({ exit: 0, stdout: "500\n" });
});

test("guard() works for a caller that ignores SIGCHLD and holds signals off", async () => {
  await using agent = await FakeAgent.start();
  const python = `import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO, signal.SIGCHLD])
os.execv(sys.argv[1], ["agent", "guard", "store", "--", "sh", "-c", "exit 11"])`;
  const child = Bun.spawn({
    cmd: ["python3", "-c", python, AGENT],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdout: "pipe",
    stderr: "pipe",
  });
  expect(await finish(child)).toMatchObject({ exit: 11, stderr: "" });
});

test("guard() exits with 127 for no command and 126 for one that cannot run, asking for no lease", async () => {
  await using agent = await FakeAgent.start();
  await agent.kill();
  writeFileSync(agent.path("plain"), "text");
  expect(await agent.run(["guard", "store", "--", "no-such-command"])).toMatchObject({
    exit: 127,
    stderr: "agent: Cannot run no-such-command: there is no such command\n",
  });
  expect(await agent.run(["guard", "store", "--", ""])).toMatchObject({
    exit: 127,
    stderr: 'agent: Cannot run "": there is no such command\n',
  });
  expect(await agent.run(["guard", "store", "--", "./plain"])).toMatchObject({
    exit: 126,
    stderr: "agent: Cannot run ./plain: it may not be executed (see chmod +x)\n",
  });
  expect(await agent.run(["guard", "store", "--", "/tmp"])).toMatchObject({
    exit: 126,
    stderr: "agent: Cannot run /tmp: it is a directory\n",
  });
});

test("guard() runs a script without #! by the shell, and frees the store when exec fails", async () => {
  await using agent = await FakeAgent.start();
  writeFileSync(agent.path("script"), `echo "$1" by $ZIT_LEASE_STORE; exit 3`);
  writeFileSync(agent.path("broken"), "#!/no/such/interpreter\n");
  chmodSync(agent.path("script"), 0o755);
  chmodSync(agent.path("broken"), 0o755);
  expect(await agent.run(["guard", "store", "--", "./script", "run"]))
    .toMatchObject({ exit: 3, stdout: "run by store\n" });
  expect(await agent.run(["guard", "store", "--", "./broken"])).toMatchObject({
    exit: 126,
    stderr: "agent: Cannot run broken: the interpreter that its first line names does not exist\n",
  });
  expect(tryFlock(openSync(agent.path("store.lock"), "r+"))).toBe(true);
});

test.each(Object.entries(KINDS).map(([kind, { exit }]) => [kind as Kind, exit] as const))(
  "guard() refused as %s exits with %d, and runs nothing",
  async (kind, exit) => {
    await using agent = await FakeAgent.start();
    await agent.order({ refuse: { kind, message: `Cannot guard store: ${kind}` } });
    const result = await agent.guard("echo ran");
    expect(result).toMatchObject({ exit, stdout: "" });
    expect(result.stderr).toStartWith(`agent: Cannot guard store: ${kind}`);
  },
);

test("guard() names the holder and what to do when another node holds the store", async () => {
  await using agent = await FakeAgent.start();
  await agent.order({
    refuse: {
      kind: "not_holder",
      message: "Cannot guard store: another node holds it; " +
        "send the write there, or wait for the lease.",
      holder: { node: "node-2", address: "10.0.0.2:7000", epoch: 7, since: null },
    },
  });
  const told = "agent: Cannot guard store: another node holds it; send the write there, " +
    "or wait ";
  const who = " (node node-2 at 10.0.0.2:7000 holds it)";
  expect((await agent.guard("true")).stderr).toBe(
    `${told}for the lease with --wait-lease --wait 1m${who}\n`,
  );
  const waiting = await agent.guard("true", ["--wait-lease", "--wait", "5s"]);
  expect(waiting.stderr).toBe(`${told}longer${who}\n`);
});

test.each([["busy", "wait longer or try again"], ["grace", "try again"]] as const)(
  "guard() says once how to wait when it is refused as %s",
  async (kind, advice) => {
    await using agent = await FakeAgent.start();
    await agent.order({ refuse: { kind, message: `Cannot guard store: not now; ${advice}` } });
    expect((await agent.guard("true")).stderr)
      .toBe("agent: Cannot guard store: not now; try again, or wait for it with --wait 30s\n");
    expect((await agent.guard("true", ["--wait", "1s"])).stderr)
      .toBe(`agent: Cannot guard store: not now; ${advice}\n`);
  },
);

test("guard() is refused with 64 for a path at which there can be no socket", async () => {
  for (const socket of ["", `/${"x".repeat(107)}`]) {
    const run = await runAgent(["guard", "store", "--socket", socket, "--", "true"]);
    expect(run).toMatchObject({ exit: 64, stdout: "" });
    expect(run.stderr).toStartWith("agent: Cannot reach an agent at ");
  }
});

test("guard() exits with 69 when there is no agent, and with 64 for no store code", async () => {
  const socket = "/nonexistent/agent.sock";
  expect((await runAgent(["guard", "store", "--socket", socket, "--", "true"])).exit).toBe(69);
  expect((await runAgent(["guard", "../store", "--socket", socket, "--", "true"])).exit).toBe(64);
});

test("guard() ended by a signal while it waits exits with 128+n and leaves no grant", async () => {
  await using agent = await FakeAgent.start();
  await agent.order({ delayMs: 60_000 });
  const child = agent.spawn(["guard", "store", "--wait", "10s", "--", "touch", "ran"]);
  // Its watchdog comes up after it listens for signals.
  await until(() => readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8") !== "");
  child.kill("SIGTERM");
  expect((await finish(child)).exit).toBe(143);
  await agent.order({ delayMs: 0 });
  expect((await agent.guard("ls")).stdout).not.toContain("ran");
});

test("guard --unguarded runs with no agent, says so, and sets only the reason", async () => {
  const env = { ZIT_LEASE_TOKEN: "stale", ZIT_LEASE_STORE: "stale" };
  const args = ["guard", "store", "--unguarded", "repair", "--", "sh", "-c", "env; exit 8"];
  const result = await runAgent(args, { env });
  expect(result).toMatchObject({
    exit: 8,
    stderr: 'agent: UNGUARDED store=store reason="repair"\n',
  });
  expect(result.stdout.split("\n").filter((line) => line.startsWith("ZIT_")))
    .toEqual(["ZIT_LEASE_UNGUARDED=repair"]);
  for (const empty of [" ", "\u200b"]) {
    const { exit } = await runAgent(["guard", "store", "--unguarded", empty, "--", "true"]);
    expect(exit).toBe(64);
  }
});

test("guard() keeps the watchdog clear of the lock and of the caller's descriptors", async () => {
  await using agent = await FakeAgent.start();
  const script = `for pid in $(ps -o pid= --ppid $PPID); do
  [ $pid = $$ ] || { ls -l /proc/$pid/fd; readlink /proc/$pid/cwd; ps -o sid=,pid= -p $pid; }
done`;
  const { stdout } = await agent.guard(script);
  expect(stdout).not.toContain("store.lock");
  expect(stdout).toContain("\n/\n");
  const [session, pid] = stdout.trim().split("\n").at(-1)!.trim().split(/\s+/);
  expect(session).toBe(pid!);
});

test("verify() proves the grant of the command around it", async () => {
  await using agent = await FakeAgent.start();
  const result = await agent.guard(
    `${AGENT} verify && ${AGENT} verify --json; ${AGENT} verify other`,
  );
  expect(JSON.parse(result.stdout)).toMatchObject({ store: "store", epoch: 41 });
  expect(result).toMatchObject({ exit: 77 });
});

test("verify() refuses when the lease went while the command was not looking (etcd#10811)", async () => {
  await using agent = await FakeAgent.start(60_000);
  const script = `trap '' TERM; echo > ready; while [ ! -e go ]; do sleep 0.02; done
${AGENT} verify; echo verify $?`;
  const child = agent.spawn(["guard", "store", "--", "sh", "-c", script]);
  await untilLine(agent.path("ready"));
  await agent.order({ lose: { kind: "lost", message: "node-2 took it" } });
  writeFileSync(agent.path("go"), "");
  expect(await finish(child)).toMatchObject({ exit: 79, stdout: "verify 79\n" });
  expect(readFileSync(agent.path("ready"), "utf8")).toBe("\n");
});

test("verify() outside a guard is no_token, under --unguarded it has nothing to prove", async () => {
  expect((await runAgent(["verify", "store"])).exit).toBe(77);
  const args = ["guard", "store", "--unguarded", "repair", "--", AGENT, "verify"];
  expect(await runAgent(args)).toMatchObject({ exit: 0, stdout: "" });
});

test("guard() under a standalone agent says so, and tells the command why", async () => {
  await using agent = await RealAgent.start({ node: "alone" });
  agent.makeStore("one");
  const script = `echo "$ZIT_LEASE_UNGUARDED|$ZIT_LEASE_STORE"; ${AGENT} verify`;
  const run = await runClient(agent, ["guard", "one", "--", "sh", "-c", script]);
  expect(run).toEqual({
    status: 0,
    stdout: "a test|one\n",
    stderr:
      'agent: UNGUARDED store=one reason="a test" (the agent is standalone: no other host is kept out)\n',
  });
});

test("guard() passes a signal on that comes as the command starts", async () => {
  await using agent = await FakeAgent.start();
  const script = "trap 'exit 5' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done";
  // Which of the two is sooner is up to the kernel.
  for (let i = 0; i < 20; i++) expect((await agent.guard(script)).exit).toBe(5);
});
