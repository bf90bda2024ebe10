/** Guarded commands in surroundings that few callers have, and many at once. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { finish } from "../../support/agent_under_test.ts";
import { AGENT, RealAgent, runClient } from "../../support/real_agent.ts";
import { until } from "../../support/wait.ts";

let agent: RealAgent;
beforeAll(async () => {
  agent = await RealAgent.start({ node: "alone" });
  for (const store of ["one", "crowd", "stopped"]) agent.makeStore(store);
});
afterAll(() => agent[Symbol.asyncDispose]());

/** Runs a script by bash, in which `$GUARD` guards a command of store `one`. */
async function inBash(script: string): Promise<{ status: number; stdout: string }> {
  const child = Bun.spawn({
    cmd: ["bash", "-c", script],
    env: {
      PATH: process.env.PATH!,
      GUARD: `${AGENT} guard one --`,
      ZIT_AGENT_SOCKET: agent.socket,
      OUT: join(agent.dir, "out"),
    },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const { stdout } = await finish(child);
  return { status: child.exitCode!, stdout };
}

test.each(["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])(
  "guard() started with %s runs its command under the lock, with its status",
  async (closed) => {
    // The lock must not have become what the command takes for stdin, stdout or stderr.
    const command = 'readlink /proc/self/fd/$ZIT_LEASE_LOCK_FD >"$OUT"; ' +
      '[ "$ZIT_LEASE_LOCK_FD" -gt 2 ] && exit 5';
    const { status } = await inBash(`$GUARD sh -c '${command}' ${closed}`);
    const file = readFileSync(join(agent.dir, "out"), "utf8").trim();
    expect([status, file]).toEqual([5, join(agent.locks, "one/lease.lock")]);
  },
);

test("guard() lets its command die of a pipe that nobody reads, as without it", async () => {
  const { stdout } = await inBash('$GUARD yes | head -n 1; echo "${PIPESTATUS[@]}"');
  expect(stdout).toBe("y\n141 0\n");
});

test("guard() tells its command the socket as it holds in any directory", async () => {
  const verify = `cd / && "$AGENT" verify && echo "$ZIT_AGENT_SOCKET"`;
  const child = Bun.spawn({
    cmd: [AGENT, "guard", "one", "--socket", "agent.sock", "--", "sh", "-c", verify],
    cwd: agent.dir,
    env: { PATH: process.env.PATH!, AGENT },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const { stdout } = await finish(child);
  expect([child.exitCode, stdout]).toEqual([0, `${agent.socket}\n`]);
});

test("guard() under nohup leaves the hang-up ignored", async () => {
  const { stdout } = await inBash("nohup $GUARD sh -c 'kill -HUP $$; echo alive'");
  expect(stdout).toBe("alive\n");
});

test("guard() passes on an environment of near two megabytes", async () => {
  const script = "for i in {1..15}; do export BIG$i=$(head -c 120000 /dev/zero | tr '\\0' x); done";
  expect((await inBash(`${script}; $GUARD sh -c 'echo \${#BIG15}'`)).stdout).toBe("120000\n");
});

test("guard() with a command that forks away ends with it, and the store is busy until that ends", async () => {
  const { status } = await inBash(
    '$GUARD sh -c "sleep 60 >/dev/null 2>&1 & echo \\$! >$OUT; exit 7"',
  );
  expect(status).toBe(7);
  const busy = await runClient(agent, ["guard", "one", "--", "true"]);
  const pid = Number(readFileSync(join(agent.dir, "out"), "utf8"));
  expect([busy.status, busy.stderr]).toEqual([
    75,
    expect.stringContaining(`process ${pid} (sleep`),
  ]);
  process.kill(pid);
  expect(await runClient(agent, ["guard", "one", "--wait", "30s", "--", "true"]))
    .toMatchObject({ status: 0 });
});

test("guard() without a terminal stops and goes on with its command", async () => {
  const child = Bun.spawn({
    cmd: [AGENT, "guard", "stopped", "--", "sh", "-c", "echo $$; read line; exit 6"],
    env: { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: agent.socket },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "ignore",
  });
  const { value } = await child.stdout.getReader().read();
  const pid = Number(new TextDecoder().decode(value));
  const state = () => /^State:\s+(.)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  child.kill("SIGTSTP");
  await until("the command is stopped", () => state() === "T");
  child.kill("SIGCONT");
  await until("the command goes on", () => state() === "S");
  child.stdin.write("\n");
  await child.stdin.end();
  expect(await child.exited).toBe(6);
});

test("a hundred guards at once on one store run their commands one after the other", async () => {
  const log = join(agent.dir, "order");
  const command = `echo begin >>${log}; sleep 0.01; echo end >>${log}`;
  const all = Array.from(
    { length: 100 },
    () => runClient(agent, ["guard", "crowd", "--wait", "5m", "--", "sh", "-c", command]),
  );
  for (const { status } of await Promise.all(all)) expect(status).toBe(0);
  expect(readFileSync(log, "utf8")).toBe("begin\nend\n".repeat(100));
}, 300_000);
