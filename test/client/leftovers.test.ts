/** What a write starts in its process group ends with the guard, and starting it leaves nothing behind. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import {
  type Client,
  connect,
  LostError,
  MisconfiguredError,
  unguarded,
  ZitCli,
} from "../../src/client/mod.ts";
import { freezeProcess } from "../support/freeze.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent } from "../support/real_agent.ts";
import { reap } from "../support/reaper.ts";
import { isRunning, pidIn } from "../support/running.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;
/** More than a very busy machine takes; nothing here is meant to be that long. */
const PATIENCE_MS = 60_000;

let host: RealAgent;
let agent: Client;
let directory: ReturnType<typeof tempDir>;
let count = 0;
const started: number[] = [];

beforeAll(async () => {
  host = await RealAgent.start({ node: "leftovers" });
  for (const store of ["one", "two"]) host.makeStore(store);
  agent = await connect({ socket: host.socket, passLock: AGENT });
  directory = tempDir();
});
afterEach(() => {
  for (const pid of started.splice(0)) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended, as it should.
    }
  }
});
afterAll(async () => {
  await agent.close();
  await host[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

/** A shell as stand-in for zit: what is written is a script. */
function shell(killAfterMs: number): ZitCli {
  return new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"], killAfterMs });
}

/** A file to which a script writes the number of a process. */
function pidFile(): string {
  return join(directory.path, `pid-${++count}`);
}

async function startedIn(file: string): Promise<number> {
  const pid = await pidIn(file);
  started.push(pid);
  return pid;
}

/** Leaves a process behind that has none of the outputs; it notes when it is asked to end. */
function leaving(file: string, trap = "exit"): string {
  const inner = `trap "echo >${file}.asked; ${trap}" TERM; echo $$ >${file}.new; ` +
    `mv ${file}.new ${file}; while :; do sleep 0.05; done`;
  return `sh -c '${inner}' >/dev/null 2>&1 &`;
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then((value) => {
    throw new Error(`not rejected: ${JSON.stringify(value)}`);
  }, (error) => error);
}

describe("a process that write() leaves behind in its group", () => {
  test.each([
    ["in order", "exit", {}],
    ["by force where it does not heed that", ":", {}],
    ["in order, without passLock", "exit", { passLock: false as const }],
  ])("has ended before the next guard begins: %s (consul#2022)", async (_how, trap, options) => {
    const file = pidFile();
    let [pid, wasAlive, overlapped] = [0, false, true];
    const first = agent.guard("one", options, async (token) => {
      const { status } = await shell(300).write(token, "one", [leaving(file, trap)]);
      expect(status).toBe(0);
      pid = await startedIn(file);
      wasAlive = isRunning(pid);
    });
    await until("the first has its grant", () => existsSync(file));
    await agent.guard("one", { waitMs: PATIENCE_MS }, () => void (overlapped = isRunning(pid)));
    await first;
    expect(wasAlive).toBe(true);
    expect(existsSync(`${file}.asked`)).toBe(true);
    expect(overlapped).toBe(false);
  }, PATIENCE_MS);

  test("ends when the signal aborts after write() has returned", async () => {
    const file = pidFile();
    const control = new AbortController();
    await agent.guard("one", { signal: control.signal }, async (token) => {
      await shell(200).write(token, "one", [leaving(file, ":")]);
      const pid = await startedIn(file);
      expect(isRunning(pid)).toBe(true);
      control.abort();
      await until("it is killed", () => !isRunning(pid));
      expect(existsSync(`${file}.asked`)).toBe(true);
    });
  }, PATIENCE_MS);

  test("is killed at the deadline when the agent stands still", async () => {
    await using nats = await NatsServer.start();
    const flags = ["--ttl", "3s"];
    await using alpha = await RealAgent.start({ node: "alpha", nats: nats.url, flags });
    alpha.makeStore("one");
    await using client = await connect({ socket: alpha.socket, passLock: AGENT });
    const file = pidFile();
    let [pid, wasAsked] = [0, false];
    await client.guard("one", { waitMs: 10_000 }, async (token) => {
      await shell(PATIENCE_MS).write(token, "one", [leaving(file, ":")]);
      pid = await startedIn(file);
      freezeProcess(alpha.pid);
      wasAsked = await until("it is asked to end", () => existsSync(`${file}.asked`));
      await until("the deadline", () => !token.live);
    }).catch((error) => expect(error).toBeInstanceOf(LostError));
    alpha.signal("SIGCONT");
    expect(wasAsked).toBe(true);
    // The guard did not end before that.
    expect(isRunning(pid)).toBe(false);
  }, PATIENCE_MS);

  test("does not outlive the process that runs the guard", async () => {
    const file = pidFile();
    const script = `
      import { connect, ZitCli } from ${JSON.stringify(MODULE)};
      const agent = await connect(${JSON.stringify({ socket: host.socket, passLock: AGENT })});
      const shell = new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"] });
      await agent.guard("two", {}, async (token) => {
        await shell.write(token, "two", [${JSON.stringify(leaving(file, ":"))}]);
        console.log("returned");
        await new Promise((resolve) => setTimeout(resolve, ${PATIENCE_MS}));
      });
    `;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    reap(child.pid);
    await child.stdout.getReader().read();
    const pid = await startedIn(file);
    expect(isRunning(pid)).toBe(true);
    child.kill("SIGKILL");
    await until("it is killed", () => !isRunning(pid));
  }, PATIENCE_MS);

  test("lives on where there is no lease", async () => {
    const file = pidFile();
    await shell(100).write(unguarded("a test of leftovers"), "one", [leaving(file)]);
    const pid = await startedIn(file);
    await agent.guard("one", {}, () => {});
    expect(isRunning(pid)).toBe(true);
    expect(existsSync(`${file}.asked`)).toBe(false);
  }, PATIENCE_MS);
});

test("write() that nobody waits for has ended before the next guard begins", async () => {
  const file = pidFile();
  let run: Promise<unknown> | undefined;
  let [pid, overlapped] = [0, true];
  const first = agent.guard("one", {}, async (token) => {
    const script = `trap '' TERM; echo $$ >${file}; while :; do sleep 0.05; done`;
    run = failure(shell(300).write(token, "one", [script]));
    pid = await startedIn(file);
  });
  await until("the first has its grant", () => existsSync(file));
  await agent.guard("one", { waitMs: PATIENCE_MS }, () => void (overlapped = isRunning(pid)));
  await first;
  expect(overlapped).toBe(false);
  expect(await run).toMatchObject({ kind: "no_token" });
}, PATIENCE_MS);

test(
  "write() does not wait for who left the group and keeps the outputs, once it is to end",
  async () => {
    const file = pidFile();
    const control = new AbortController();
    await agent.guard("one", {}, async (token) => {
      const script = `setsid sh -c 'echo $$ >${file}.new; mv ${file}.new ${file}; exec sleep 600'`;
      const options = { signal: control.signal };
      const run = failure(shell(100).write(token, "one", [script], options));
      const pid = await startedIn(file);
      control.abort(new Error("enough"));
      expect(await run).toMatchObject({ message: "enough" });
      expect(isRunning(pid)).toBe(true); // that one is not covered
    });
  },
  PATIENCE_MS,
);

describe("a program that cannot be started", () => {
  const causes: [what: string, code: string][] = [
    ["a NUL in an argument", `shell.write(token, "two", ["a\\0b"])`],
    ["arguments that are too long", `shell.write(token, "two", ["x".repeat(8 << 20)])`],
    [
      "a directory that is none",
      `new ZitCli({ executable: "/bin/sh",
      directory: () => "/nowhere" }).write(token, "two", ["-c", "true"])`,
    ],
    ["no such program", `new ZitCli({ executable: "/nowhere" }).write(token, "two", [])`],
    [
      "a directory that throws",
      `new ZitCli({ executable: "/bin/sh",
      directory: () => { throw new Error("none"); } }).write(token, "two", [])`,
    ],
  ];
  const node = Bun.spawnSync([join(MODULE, "../../../scripts/node"), "22.23.5"]).stdout.toString();
  const built = Bun.build({ entrypoints: [MODULE], target: "node" });
  const runtimes: [name: string, path: string][] = [["Bun", process.execPath], [
    "Node",
    node.trim(),
  ]];

  describe.each(runtimes)("under %s", (_name, path) => {
    test.skipIf(path === "").each(causes)("leaves no process behind: %s", async (_what, code) => {
      const module = join(directory.path, "client.mjs");
      await Bun.write(module, (await built).outputs[0]!);
      const program = join(directory.path, `program-${++count}.mjs`);
      await Bun.write(
        program,
        `
        import { connect, ZitCli } from ${JSON.stringify(module)};
        import { readdirSync } from "node:fs";
        const agent = await connect(${JSON.stringify({ socket: host.socket, passLock: AGENT })});
        const shell = new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"] });
        await agent.guard("two", { waitMs: 10_000 }, async (token) => {
          await ${code}.then(() => console.log("ran"), () => console.log("refused"));
        });
        await agent.close();
      `,
      );
      const child = Bun.spawn([path, program], { stdout: "pipe" });
      reap(child.pid);
      // It ends by itself: nothing that it started keeps it.
      expect(await new Response(child.stdout).text()).toBe("refused\n");
      expect(await child.exited).toBe(0);
    }, PATIENCE_MS);
  });
});

test("passLock that names no agent is refused, not taken for a write that was made", async () => {
  for (
    const [passLock, why] of [
      ["/bin/true", "/bin/true ended with status"],
      ["/bin/sh", "/bin/sh ended with status"],
      ["/nowhere/agent", 'executable "/nowhere/agent": '],
      ["no-such-agent-in-path", 'executable "no-such-agent-in-path": '],
      ["/etc/passwd", 'executable "/etc/passwd": '],
    ] as const
  ) {
    const error = await failure(
      agent.guard("one", { passLock }, (token) => shell(100).write(token, "one", ["true"])),
    );
    expect(error).toBeInstanceOf(MisconfiguredError);
    expect((error as Error).message).toContain(why);
    // Both ways out.
    expect((error as Error).message).toContain("name the agent's executable");
    expect((error as Error).message).toContain("passLock: false");
  }
});

test("outputs are returned as they are, where bytes are asked for", async () => {
  const cli = new ZitCli({ executable: "/bin/sh", reads: ["-c"] });
  const script = `printf '\\377\\000\\303'; printf '\\376' >&2`;
  const bytes = await cli.read("one", "-c", [script], { output: "bytes" });
  expect([...bytes.stdout]).toEqual([255, 0, 195]);
  expect([...bytes.stderr]).toEqual([254]);
  const text: string = (await cli.read("one", "-c", [script])).stdout;
  expect(text).toBe("\ufffd\0\ufffd");
  await agent.guard("one", {}, async (token) => {
    const { stdout } = await shell(100).write(token, "one", [script], { output: "bytes" });
    expect([...stdout]).toEqual([255, 0, 195]);
  });
});
