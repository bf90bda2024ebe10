/** The lock on disk belongs to what runs under a token, not to the agent or the client. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync,
} from "node:fs";
import { join, relative } from "node:path";
import {
  type Client,
  connect,
  InvalidError,
  LostError,
  MisconfiguredError,
  NoTokenError,
  ZitCli,
} from "../../src/client/mod.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import { TestServer } from "../socket/support/server.ts";
import { AGENT, RealAgent, refusal } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { isRunning, pidIn } from "../support/running.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;

let host: RealAgent;
let agent: Client;
let directory: ReturnType<typeof tempDir>;
beforeAll(async () => {
  host = await RealAgent.start({ node: "locks" });
  for (const store of ["one", "two"]) host.makeStore(store);
  agent = await connect({ socket: host.socket });
  directory = tempDir();
});
afterAll(async () => {
  await agent.close();
  await host[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

/** A shell as stand-in for zit: what is written is a script. */
const shell = new ZitCli({ executable: "sh", prefix: () => ["-c"], killAfterMs: 60_000 });
const passLock = { passLock: AGENT };

function lockOf(on: RealAgent, store: string): string {
  return join(on.locks, store, "lease.lock");
}

/** By somebody who has nothing to do with agent or client. */
function isFree(lock: string): boolean {
  return Bun.spawnSync(["flock", "-n", lock, "true"]).exitCode === 0;
}

/** What the descriptors of this process are of. */
function openFiles(): string[] {
  return readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ""; // that of the listing itself
    }
  });
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then((value) => {
    throw new Error(`not rejected: ${JSON.stringify(value)}`);
  }, (error) => error);
}

/** A program that guards a write of `script` on `store`, for a process of its own. */
function guarding(socket: string, store: string, script: string): string {
  return `
    import { connect, ZitCli } from ${JSON.stringify(MODULE)};
    const agent = await connect({ socket: ${JSON.stringify(socket)} });
    const shell = new ZitCli({ executable: "sh", prefix: () => ["-c"] });
    await agent.guard(${JSON.stringify(store)}, { passLock: ${JSON.stringify(AGENT)} }, (token) =>
      shell.write(token, ${JSON.stringify(store)}, [${JSON.stringify(script)}]));
  `;
}

describe("what write() runs under a guard", () => {
  test("has the locked file, the lease's environment, and nothing else of who started it", async () => {
    await agent.guard("one", passLock, async (token) => {
      // No pipe in the shell, which would have a descriptor for it.
      const script = "readlink /proc/self/fd/$ZIT_LEASE_LOCK_FD; cat; " +
        'echo "$ZIT_LEASE_STORE $ZIT_LEASE_EPOCH $ZIT_LEASE_UNGUARDED"; ' +
        // Read by the shell itself: while it starts a program, it blocks every signal.
        'while read -r line; do case $line in SigBlk*|SigIgn*) echo "$line"; esac; done ' +
        "</proc/self/status; ls /proc/$$/fd; exit 7";
      const { stdout, stderr, status } = await shell.write(token, "one", [script], {
        input: "input\n",
      });
      expect([status, stderr]).toEqual([7, ""]);
      const [lock, input, variables, blocked, ignored, ...fds] = stdout.trimEnd().split("\n");
      expect(lock).toBe(lockOf(host, "one"));
      expect(input).toBe("input");
      expect(variables).toBe(`one ${token.epoch} a test`);
      const none = "0".repeat(16);
      expect([blocked, ignored]).toEqual([`SigBlk:\t${none}`, `SigIgn:\t${none}`]);
      expect(fds).toEqual(["0", "1", "2", "3"]);
      // What came with the answer to the guard was dropped by the kernel, not kept here.
      expect(openFiles()).not.toContain(lockOf(host, "one"));
    });
    await until("the lock is free", () => isFree(lockOf(host, "one")));
  });

  test("is refused, and nothing runs, when the token does not stand any more", async () => {
    const marker = join(directory.path, "refused");
    await agent.guard("two", passLock, async (token) => {
      expect(await failure(shell.write(token, "one", [`touch ${marker}`])))
        .toBeInstanceOf(NoTokenError);
      await Bun.$`rm -rf ${join(host.locks, "two")}`;
      host.makeStore("two");
      expect(await failure(shell.write(token, "two", [`touch ${marker}`])))
        .toBeInstanceOf(LostError);
    }).catch((error) => expect(error).toBeInstanceOf(LostError));
    expect(existsSync(marker)).toBe(false);
  });

  test("does not run when it, or the agent's executable, is not there", async () => {
    const nowhere = new ZitCli({ executable: "/nowhere/zit" });
    await agent.guard("one", passLock, async (token) => {
      expect(String(await failure(nowhere.write(token, "one", ["commit"])))).toContain(
        "Cannot run /nowhere/zit: there is no such command",
      );
    });
    await agent.guard("one", { passLock: "/nowhere/agent" }, async (token) => {
      expect(await failure(shell.write(token, "one", ["true"]))).toMatchObject({
        kind: "misconfigured",
      });
    });
  });

  test("does not run where the agent that granted it is too old to pass a lock", async () => {
    const nothing = (_params: unknown, _connection: unknown, reply: { ok(result: object): void }) =>
      reply.ok({});
    await using server = await TestServer.start({
      guard: ({ store }, _connection, reply) =>
        reply.ok({
          token: "made here",
          store,
          epoch: 1,
          revision: 1,
          node: "old",
          remaining_ms: 60_000,
          deadline_boot_ms: bootTimeMs() + 60_000,
          lock_path: "/nowhere",
          unguarded: null,
        }),
      verify: ({ store }, _connection, reply) =>
        reply.ok({ store, epoch: 1, revision: 1, remaining_ms: 60_000 }),
      release: nothing,
    });
    await using client = await connect({ socket: server.path, ...passLock });
    const error = await failure(
      client.guard("one", {}, (token) => shell.write(token, "one", ["true"])),
    );
    expect(error).toBeInstanceOf(MisconfiguredError);
    expect(String(error)).toContain(`The agent at ${server.path} is too old to pass a lock`);
  });

  test("gets what was named by relative paths as this process means them", async () => {
    const here = (path: string) => relative(process.cwd(), path);
    const program = join(directory.path, "program");
    writeFileSync(program, '#!/bin/sh\ncd / && "$AGENT" verify && echo "$ZIT_AGENT_SOCKET $PWD"\n');
    chmodSync(program, 0o755);
    await using client = await connect({ socket: here(host.socket), passLock: here(AGENT) });
    expect(client.socket).toBe(host.socket);
    const zit = new ZitCli({
      executable: here(program),
      directory: () => directory.path,
      env: { ...process.env, AGENT },
    });
    for (const options of [{}, { passLock: here(AGENT) }, { passLock: false as const }]) {
      const ran = await client.guard(
        "one",
        { waitMs: 20_000, ...options },
        (token) => zit.write(token, "one", []),
      );
      expect(ran).toMatchObject({ stderr: "", stdout: `${host.socket} /\n`, status: 0 });
    }
  });

  test("gets the socket that the environment names, relative as it is", async () => {
    const program = `
      import { connect, ZitCli } from ${JSON.stringify(MODULE)};
      const agent = await connect({ passLock: ${JSON.stringify(AGENT)} });
      const zit = new ZitCli({ executable: "/bin/sh", directory: () => "/", prefix: () => ["-c"] });
      const { stdout } = await agent.guard("one", { waitMs: 20_000 }, (token) =>
        zit.write(token, "one", ['echo "$ZIT_AGENT_SOCKET"']));
      process.stdout.write(stdout);
      await agent.close();
    `;
    const child = Bun.spawn([process.execPath, "-e", program], {
      cwd: host.dir,
      env: { ...process.env, ZIT_AGENT_SOCKET: "./agent.sock" },
      stdout: "pipe",
    });
    expect(await new Response(child.stdout).text()).toBe(`${host.socket}\n`);
  });

  test("keeps the lock when the agent is killed, until it ends", async () => {
    await using first = await RealAgent.start({ node: "killed" });
    first.makeStore("one");
    await using client = await connect({ socket: first.socket });
    const pidFile = join(directory.path, "survivor");
    let pid = 0;
    const lost = await failure(client.guard("one", passLock, async (token) => {
      // It does not heed the SIGTERM that it gets when the agent goes.
      const script = `trap '' TERM; echo $$ >${pidFile}; sleep 60 & wait; wait; sleep 60`;
      const run = failure(shell.write(token, "one", [script]));
      pid = await pidIn(pidFile);
      await first.end("SIGKILL");
      await until("the client knows", () => token.signal.aborted);
      expect(isRunning(pid)).toBe(true);
      expect(isFree(lockOf(first, "one"))).toBe(false);
      // Nor is the next agent's guard granted beside it.
      const flags = ["--socket", first.socket];
      const { state, locks } = first;
      await using second = await RealAgent.start({ node: "killed", state, locks, flags });
      const other = await connect({ socket: second.options.flags![1]! });
      const busy = await refusal(other.guard("one", {}, () => {}));
      expect(busy.kind).not.toBe("unavailable");
      expect(isRunning(pid)).toBe(true);
      process.kill(-pid, "SIGKILL");
      await run;
      await other.guard("one", { waitMs: 20_000 }, () => {});
      await other.close();
    }));
    expect(lost).toBeInstanceOf(LostError);
  });

  test.each(["stays in its group", "leaves its group"])(
    "has the lock as long as it lives when agent and client are killed, and it %s",
    async (what) => {
      await using first = await RealAgent.start({ node: "both" });
      first.makeStore("one");
      const lock = lockOf(first, "one");
      const pidFile = join(directory.path, `both-${what.replaceAll(" ", "-")}`);
      const leaves = what === "leaves its group" ? "setsid " : "";
      const script = `${leaves}sh -c 'echo $$ >${pidFile}; exec sleep 60' & wait`;
      const client = Bun.spawn([process.execPath, "-e", guarding(first.socket, "one", script)], {
        stdin: "ignore",
      });
      reap(client.pid);
      const pid = await pidIn(pidFile);
      reap(pid);
      expect(isFree(lock)).toBe(false);
      process.kill(client.pid, "SIGKILL");
      first.signal("SIGKILL");
      await Promise.all([client.exited, first.exited()]);
      reaped(client.pid);
      if (leaves) {
        // Nobody is left who could end it, and nobody else gets the lock.
        expect(isRunning(pid)).toBe(true);
        expect(isFree(lock)).toBe(false);
        process.kill(pid, "SIGKILL");
      }
      await until("the lock is free", () => isFree(lock));
      expect(isRunning(pid)).toBe(false);
      reaped(pid);
    },
  );

  test("with passLock: false the lock goes with the agent: what the option is for", async () => {
    await using first = await RealAgent.start({ node: "without" });
    first.makeStore("one");
    await using client = await connect({ socket: first.socket });
    const pidFile = join(directory.path, "without");
    const lost = failure(client.guard("one", { passLock: false }, async (token) => {
      const script = `trap '' TERM; echo $$ >${pidFile}; sleep 60 & wait; wait; sleep 60`;
      const run = failure(shell.write(token, "one", [script]));
      const pid = await pidIn(pidFile);
      await first.end("SIGKILL");
      await until("the lock is free", () => isFree(lockOf(first, "one")));
      expect(isRunning(pid)).toBe(true);
      process.kill(-pid, "SIGKILL");
      await run;
    }));
    expect(await lost).toBeInstanceOf(LostError);
  });
});

describe("verify with pass_lock", () => {
  test("is invalid for a guard that was asked for without, and no_token for none", async () => {
    const connection = await host.client();
    const { token } = await connection.call("guard", { store: "one", wait_ms: 20_000 });
    const asked = { store: "one", token, pass_lock: true };
    const { error } = await refusal(connection.call("verify", asked));
    expect(error).toBeInstanceOf(InvalidError);
    expect(error.message).toContain("asked for without pass_lock");
    await connection.call("verify", { store: "one", token });
    await connection.call("release", { token });
    expect((await refusal(connection.call("verify", asked))).kind).toBe("no_token");
  });
});

describe("agent exec-locked", () => {
  test("says what is wrong on stderr, with the exit status of the kind", () => {
    const run = (args: string[], env: Record<string, string> = {}) => {
      const { exitCode, stderr } = Bun.spawnSync([AGENT, "exec-locked", ...args], {
        env: { PATH: process.env.PATH!, ...env },
      });
      return `${exitCode} ${stderr}`;
    };
    const lease = { ZIT_LEASE_STORE: "one", ZIT_LEASE_TOKEN: "made up" };
    const socket = { ZIT_AGENT_SOCKET: host.socket };
    expect(run(["true"])).toStartWith("64 agent: Give `agent exec-locked");
    expect(run(["--report", "99", "--", "true"]))
      .toStartWith("64 agent: Cannot report on descriptor 99: ");
    expect(run(["--report", "4294967297", "--", "true"])).toStartWith("64 agent: Give");
    expect(run(["--", "true"])).toStartWith("64 agent: ZIT_LEASE_STORE is not set");
    expect(run(["--", "/nowhere"])).toStartWith("127 agent: Cannot run /nowhere");
    expect(run(["--", "true"], { ...lease, ...socket })).toStartWith("77 agent: ");
    expect(run(["--", "true"], { ...lease, ZIT_AGENT_SOCKET: "/nowhere.sock" }))
      .toStartWith("69 agent: Cannot reach the agent");
  });

  test("says on the descriptor of --report what it becomes, and why not after all", async () => {
    host.makeStore("told");
    const client = await host.client();
    const { token } = await client.call("guard", { store: "told", pass_lock: true });
    const env = {
      PATH: process.env.PATH!,
      ZIT_LEASE_STORE: "told",
      ZIT_LEASE_TOKEN: token,
      ZIT_AGENT_SOCKET: host.socket,
    };
    const report = (...command: string[]) => {
      const file = join(directory.path, "report");
      const script = '"$@" 3>"$0"';
      const words = [AGENT, "exec-locked", "--report", "3", "--", ...command];
      const { exitCode } = Bun.spawnSync(["sh", "-c", script, file, ...words], { env });
      return [exitCode, ...readFileSync(file, "utf8").trim().split("\n").map((l) => JSON.parse(l))];
    };
    expect(report("sh", "-c", "exit 7")).toEqual([7, { becomes: "sh" }]);
    const broken = join(directory.path, "broken");
    writeFileSync(broken, "#!/nowhere\n", { mode: 0o755 });
    expect(report(broken)).toMatchObject([126, { becomes: "broken" }, { exit: 126 }]);
    await client.call("release", { token });
    expect(report("true")).toMatchObject([77, { data: { kind: "no_token" } }]);
  });
});
