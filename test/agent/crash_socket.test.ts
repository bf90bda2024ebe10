/** The agent's door: who may come in, how many, and who else is there already. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { connect as connectSocket, type Socket } from "node:net";
import { join } from "node:path";
import { again, fleet } from "../support/fleet.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent, refusal, runClient } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const TTL_MS = 10_000;

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.start();
});
afterAll(() => server.stop());

/** Runs an agent that ends by itself. */
async function runAgent(
  args: readonly string[],
  wrap: readonly string[] = [],
): Promise<{ status: number; stderr: string }> {
  const child = Bun.spawn({
    cmd: [...wrap, AGENT, "run", "--standalone", "a test", ...args],
    env: { PATH: process.env.PATH! },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
  });
  const [stderr, status] = await Promise.all([new Response(child.stderr).text(), child.exited]);
  return { status, stderr };
}

test("a second agent on the same socket or state directory is refused with 73, and told the other's pid", async () => {
  using dir = tempDir();
  await using agent = await RealAgent.start({ node: "alone" });
  const socket = await runAgent([
    ...["--node", "x", "--socket", agent.socket, "--state-dir", join(dir.path, "s")],
    ...["--lock-path", join(dir.path, "{store}/l")],
  ]);
  expect(socket.status).toBe(73);
  expect(socket.stderr).toContain(`process ${agent.pid} listens there already`);
  const state = await runAgent([
    ...["--node", "x", "--socket", join(dir.path, "a.sock"), "--state-dir", agent.state],
    ...["--lock-path", join(dir.path, "{store}/l")],
  ]);
  expect(state.status).toBe(73);
  expect(state.stderr).toContain(`pid ${agent.pid}`);
  // It was not disturbed.
  expect((await (await agent.client()).call("status", {})).pid).toBe(agent.pid);
});

test("a socket file that a killed agent left is replaced", async () => {
  await using first = await RealAgent.start({ node: "alone" });
  await first.end("SIGKILL");
  expect(existsSync(first.socket)).toBe(true);
  await using second = await RealAgent.start({ node: "alone", ...again(first) });
  expect((await (await second.client()).call("status", {})).pid).toBe(second.pid);
});

test("modes do not depend on the umask, be it open or closed", async () => {
  for (const umask of ["000", "077"]) {
    using dir = tempDir();
    mkdirSync(join(dir.path, "locks/one"), { recursive: true });
    const child = Bun.spawn({
      cmd: [
        ...["sh", "-c", `umask ${umask}; exec "$@"`, "sh", AGENT, "run"],
        ...["--standalone", "a test", "--node", "x", "--socket", join(dir.path, "a.sock")],
        ...["--state-dir", join(dir.path, "state")],
        ...["--lock-path", join(dir.path, "locks/{store}/lease.lock")],
      ],
      env: { PATH: process.env.PATH! },
      stdin: "ignore",
      stdout: "ignore",
      stderr: "ignore",
    });
    try {
      const env = { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: join(dir.path, "a.sock") };
      await until(
        "it guards",
        () =>
          Bun.spawnSync([AGENT, "guard", "one", "--", "true"], { env, stderr: "ignore" })
            .exitCode === 0,
      );
      const mode = (path: string) => (statSync(join(dir.path, path)).mode & 0o777).toString(8);
      expect(mode("a.sock")).toBe("660");
      expect(mode("locks/one/lease.lock")).toBe("640");
      expect(mode("state")).toBe("750");
      for (const file of readdirSync(join(dir.path, "state"))) {
        expect(statSync(join(dir.path, "state", file)).mode & 0o027).toBe(0);
      }
    } finally {
      child.kill("SIGKILL");
      await child.exited;
    }
  }
});

test.skipIf(process.getuid!() !== 0)(
  "a directory of another owner or mode is named in the error, exit 73",
  async () => {
    using dir = tempDir();
    chmodSync(dir.path, 0o755);
    const nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    for (const name of ["state", "socket", "open"]) {
      mkdirSync(join(dir.path, name), { mode: 0o700 });
    }
    chmodSync(join(dir.path, "open"), 0o777);
    const common = ["--node", "x", "--lock-path", join(dir.path, "{store}/l")];
    const state = await runAgent([
      ...common,
      ...["--socket", join(dir.path, "open/a.sock"), "--state-dir", join(dir.path, "state")],
    ], nobody);
    expect(state.status).toBe(73);
    expect(state.stderr).toContain(join(dir.path, "state"));
    expect(state.stderr).toContain("belongs to uid 0 with mode 0700");
    const socket = await runAgent([
      ...common,
      ...["--socket", join(dir.path, "socket/a.sock"), "--state-dir", join(dir.path, "open/s")],
    ], nobody);
    expect(socket.status).toBe(73);
    expect(socket.stderr).toContain(join(dir.path, "socket"));
    // Others could replace the socket there.
    const open = await runAgent([
      ...common,
      ...["--socket", join(dir.path, "open/a.sock"), "--state-dir", join(dir.path, "open/s2")],
    ]);
    expect(open.status).toBe(73);
    expect(open.stderr).toContain(join(dir.path, "open"));
  },
);

test("peers are known by their credentials: who may connect, who may step down", async () => {
  const start = fleet(server.url, TTL_MS);
  await using closed = await start("alpha", { flags: ["--allow-uid", "4711"] });
  const refused = await runClient(closed, ["guard", "one", "--", "true"]);
  expect(refused.status).toBe(77);
  await using open = await start("beta", { flags: ["--admin-uid", "4711"] });
  const client = await open.client();
  expect((await client.call("guard", { store: "one" })).node).toBe("beta");
  expect((await refusal(client.call("stepdown", { all: true }))).kind).toBe("forbidden");
  expect((await runClient(open, ["stepdown", "--all"])).status).toBe(77);
});

test("every limit has its error, and is over when there is room again", async () => {
  await using agent = await fleet(server.url, TTL_MS)("alpha", {
    flags: ["--max-connections", "3", "--max-waiters", "2", "--max-grants", "2"],
  });
  for (const store of ["two", "three"]) agent.makeStore(store);
  const [first, second, third] = [
    await agent.client(),
    await agent.client(),
    await agent.client(),
  ];
  const refused = await runClient(agent, ["status"]);
  expect(refused.status).toBe(75);
  expect(refused.stderr).toContain("--max-connections");
  await third.close();
  await until("there is room", async () => (await runClient(agent, ["status"])).status === 0);

  const { token } = await first.call("guard", { store: "one" });
  await first.call("guard", { store: "two" });
  const grants = await refusal(first.call("guard", { store: "three" }));
  expect([grants.kind, grants.error.message]).toEqual([
    "limit",
    expect.stringContaining("--max-grants"),
  ]);
  const waiting = [1, 2].map(() => second.call("guard", { store: "one", wait_ms: 20_000 }));
  await until("two wait", async () => (await second.call("status", {})).counts.waiters === 2);
  const third2 = await agent.client();
  const waiters = await refusal(third2.call("guard", { store: "one", wait_ms: 20_000 }));
  expect([waiters.kind, waiters.error.message]).toEqual([
    "limit",
    expect.stringContaining("--max-waiters"),
  ]);
  await first.call("release", { token });
  const next = await waiting[0]!;
  await second.call("release", { token: next.token });
  await waiting[1];
  expect((await first.call("guard", { store: "three" })).store).toBe("three");
});

test("a crowd on an agent that may open few files never exhausts them", async () => {
  using dir = tempDir();
  mkdirSync(join(dir.path, "locks/one"), { recursive: true });
  const path = join(dir.path, "a.sock");
  const child = Bun.spawn({
    cmd: [
      ...["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", AGENT, "run", "--standalone", "a test"],
      ...["--node", "x", "--socket", path, "--state-dir", join(dir.path, "state")],
      ...["--lock-path", join(dir.path, "locks/{store}/lease.lock")],
    ],
    env: { PATH: process.env.PATH! },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
  });
  const log = new Response(child.stderr).text();
  const crowd: Socket[] = [];
  try {
    await until("it listens", () => existsSync(path));
    const ask =
      `{"jsonrpc":"2.0","id":1,"method":"guard","params":{"store":"one","shared":true}}\n`;
    let answers = 0;
    for (let i = 0; i < 400; i++) {
      const socket = connectSocket(path);
      socket.on("error", () => {});
      socket.on("data", () => answers++);
      socket.on("connect", () => socket.write(ask.repeat(3)));
      crowd.push(socket);
    }
    await until("the crowd was answered", () => answers >= 64);
    expect(readdirSync(`/proc/${child.pid}/fd`).length).toBeLessThan(256);
    for (const socket of crowd) socket.destroy();
    const env = { PATH: process.env.PATH!, ZIT_AGENT_SOCKET: path };
    await until(
      "there is room again",
      () =>
        Bun.spawnSync([AGENT, "guard", "one", "--", "true"], { env, stderr: "ignore" }).exitCode ===
          0,
    );
  } finally {
    for (const socket of crowd) socket.destroy();
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
  }
  expect(await log).not.toContain("EMFILE");
  // Whoever set the flags was told that they promise more.
  expect(await log).toMatch(/"few_descriptors".*with 256 open files .* raise the hard limit/);
});

test("an agent that could run out of descriptors does not start, and says how many it needs", async () => {
  using dir = tempDir();
  const child = Bun.spawn({
    cmd: [
      ...["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", AGENT, "run", "--standalone", "a test"],
      ...["--node", "x", "--socket", join(dir.path, "a.sock"), "--state-dir", dir.path],
    ],
    env: { PATH: process.env.PATH! },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
  });
  const log = await new Response(child.stderr).text();
  expect([await child.exited, log]).toEqual([78, expect.stringContaining("needs at least 160")]);
});

test("slow and half-closed clients get their answers and hold nobody up", async () => {
  await using agent = await fleet(server.url, TTL_MS)("alpha");
  const answered = await new Promise<string>((resolve, reject) => {
    const socket = connectSocket({ path: agent.socket, allowHalfOpen: true });
    let text = "";
    socket.on("data", (chunk) => text += chunk);
    socket.on("end", () => resolve(text));
    socket.on("error", reject);
    socket.end(`{"jsonrpc":"2.0","id":1,"method":"guard","params":{"store":"one"}}\n`);
  });
  expect(JSON.parse(answered).result.node).toBe("alpha");
  // One that sends its request a byte at a time, and one that reads nothing.
  const slow = connectSocket(agent.socket);
  slow.write('{"jsonrpc":"2.0","id":1,');
  const deaf = connectSocket(agent.socket);
  deaf.pause();
  deaf.write('{"jsonrpc":"2.0","id":1,"method":"status"}\n'.repeat(5_000));
  const client = await agent.client();
  for (let i = 0; i < 50; i++) {
    const { token } = await client.call("guard", { store: "one", wait_ms: 5_000 });
    await client.call("release", { token });
  }
  slow.destroy();
  deaf.destroy();
});
