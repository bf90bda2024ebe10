import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Client,
  connect,
  InvalidError,
  LostError,
  NoTokenError,
  type Token,
  unguarded,
  ZitCli,
} from "../../src/client/mod.ts";
import { NatsServer } from "../support/nats.ts";
import { AGENT, RealAgent } from "../support/real_agent.ts";
import { isRunning } from "../support/running.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;

/**
 * A stand-in for `zit`: notes what it is called with. `slow` ignores SIGTERM and has a child that
 * does; `polite` ends at SIGTERM, in order.
 */
const STAND_IN = `#!/bin/sh
echo "$*|$PWD|$ZIT_LEASE_STORE|$ZIT_LEASE_EPOCH|$ZIT_LEASE_NODE|$ZIT_LEASE_UNGUARDED" >>"$NOTES"
case $1 in
  slow) trap '' TERM; sleep 60 & echo "$$ $!" >"$NOTES.pids"; wait; wait; sleep 60 ;;
  polite) trap 'echo ended in order; exit 5' TERM; sleep 60 & echo "$$ $!" >"$NOTES.pids"; wait ;;
  cat) cat ;;
  fail) echo "no good" >&2; exit 4 ;;
esac
`;

let host: RealAgent;
let agent: Client;
let directory: ReturnType<typeof tempDir>;
let count = 0;

beforeAll(async () => {
  host = await RealAgent.start({ node: "cli" });
  for (const store of ["one", "two"]) host.makeStore(store);
  agent = await connect({ socket: host.socket, passLock: AGENT });
  directory = tempDir();
  writeFileSync(join(directory.path, "zit"), STAND_IN);
  chmodSync(join(directory.path, "zit"), 0o755);
});
afterAll(async () => {
  await agent.close();
  await host[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

/** The stand-in, with notes of its own. */
function standIn(options: { killAfterMs?: number } = {}) {
  const notes = join(directory.path, `notes-${++count}`);
  const cli = new ZitCli({
    executable: join(directory.path, "zit"),
    directory: () => directory.path,
    env: { PATH: process.env.PATH, NOTES: notes, ZIT_LEASE_STORE: "outer", ZIT_LEASE_TOKEN: "old" },
    ...options,
  });
  const calls = () => existsSync(notes) ? readFileSync(notes, "utf8").trim().split("\n") : [];
  const pids = () => {
    const file = `${notes}.pids`;
    return existsSync(file) ? readFileSync(file, "utf8").trim().split(" ").map(Number) : [];
  };
  return { cli, calls, pids };
}

/** Whether a stand-in's child is the program it is to be: until then a signal would be lost. */
function isSleeping([, child]: number[]): boolean {
  return child !== undefined && readFileSync(`/proc/${child}/comm`, "utf8") === "sleep\n";
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then((value) => {
    throw new Error(`not rejected: ${JSON.stringify(value)}`);
  }, (error) => error);
}

describe("ZitCli", () => {
  test("read() needs no token, and has none of an outer guard's environment", async () => {
    const { cli, calls } = standIn();
    const { stdout, status } = await cli.read("one", "cat", ["file"], { input: "text" });
    expect([stdout, status]).toEqual(["text", 0]);
    expect(calls()).toEqual([`cat file|${directory.path}||||`]);
  });

  test("read() refuses what may write, and a store that is none, and runs nothing", async () => {
    const { cli, calls } = standIn();
    // A command of another list, as a program without types would call it.
    const untyped = cli as ZitCli<string>;
    expect(await failure(untyped.read("one", "commit"))).toBeInstanceOf(InvalidError);
    expect(await failure(cli.read("../one", "cat"))).toBeInstanceOf(InvalidError);
    expect(calls()).toEqual([]);
  });

  test("write() runs under the lease, and tells status and output", async () => {
    const { cli, calls } = standIn();
    await agent.guard("one", {}, async (token) => {
      const result = await cli.write(token, "one", ["fail", "-m", "a b"]);
      expect(result).toEqual({ status: 4, signal: null, stdout: "", stderr: "no good\n" });
      const expected = `fail -m a b|${directory.path}|one|${token.epoch}|cli|a test`;
      expect(calls()).toEqual([expected]);
    });
  });

  test("write() confirms the lease right before, and the program can again by its environment", async () => {
    const cli = new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"] });
    const binary = new URL("../../dist/agent", import.meta.url).pathname;
    await agent.guard("one", {}, async (token) => {
      // What `agent verify` finds in its environment is what the program got.
      const { stdout, stderr, status } = await cli.write(token, "one", [`${binary} --json verify`]);
      expect([status, stderr]).toEqual([0, ""]);
      expect(JSON.parse(stdout)).toMatchObject({ store: "one", epoch: token.epoch });
      // The agent would not confirm this: the store was made again under the guard.
      await Bun.$`rm -rf ${join(host.locks, "one")}`;
      host.makeStore("one");
      const marker = join(directory.path, "written");
      expect(await failure(cli.write(token, "one", [`touch ${marker}`]))).toBeInstanceOf(LostError);
      expect(existsSync(marker)).toBe(false);
    }).catch((error) => expect(error).toBeInstanceOf(LostError));
  });

  test("write() refuses other stores' tokens, old ones and forged ones, and runs nothing", async () => {
    const { cli, calls } = standIn();
    let kept: Token | undefined;
    await agent.guard("one", {}, async (token) => {
      kept = token;
      expect(await failure(cli.write(token, "two", ["commit"]))).toBeInstanceOf(NoTokenError);
      // deno-lint-ignore zit/no-token-cast
      const copy = structuredClone(token);
      expect(await failure(cli.write(copy, "one", ["commit"]))).toBeInstanceOf(NoTokenError);
    });
    expect(await failure(cli.write(kept!, "one", ["commit"]))).toBeInstanceOf(NoTokenError);
    expect(calls()).toEqual([]);
  });

  test("write() takes an unguarded token, and passes the reason on", async () => {
    const { cli, calls } = standIn();
    await cli.write(unguarded("a test by hand"), "two", ["commit"]);
    expect(calls()).toEqual([`commit|${directory.path}||||a test by hand`]);
  });

  test("write() kills all that ran when the lease is lost, also what does not heed SIGTERM", async () => {
    const nats = await NatsServer.start();
    try {
      await using alpha = await RealAgent.start({
        node: "alpha",
        nats: nats.url,
        flags: ["--ttl", "3s"],
      });
      alpha.makeStore("one");
      await using client = await connect({ socket: alpha.socket, passLock: AGENT });
      const { cli, pids } = standIn({ killAfterMs: 60_000 });
      const outcome = await failure(client.guard("one", { waitMs: 10_000 }, async (token) => {
        const run = failure(cli.write(token, "one", ["slow"]));
        await until("it runs", () => pids().length === 2);
        nats.freeze();
        const error = await run;
        expect(error).toBeInstanceOf(LostError);
        // Killed at the deadline, long before killAfterMs.
        await until("all are gone", () => !pids().some(isRunning), 2_000);
        throw error;
      }));
      expect(outcome).toBeInstanceOf(LostError);
      expect((outcome as Error).message).toContain("could not be renewed");
    } finally {
      await nats.stop();
    }
  });

  test("write() lets the program end in order when its signal aborts", async () => {
    const { cli, pids } = standIn();
    const control = new AbortController();
    await agent.guard("two", {}, async (token) => {
      const run = failure(cli.write(token, "two", ["polite"], { signal: control.signal }));
      await until("it runs", () => isSleeping(pids()));
      control.abort(new Error("enough"));
      expect(await run).toMatchObject({ message: "enough" });
      expect(pids().some(isRunning)).toBe(false);
      expect(token.live).toBe(true);
    });
  });

  test("what write() runs does not outlive the process that runs it", async () => {
    const { pids } = standIn();
    const notes = join(directory.path, `notes-${count}`);
    const script = `
      import { connect, ZitCli } from ${JSON.stringify(MODULE)};
      const agent = await connect(${JSON.stringify({ socket: host.socket, passLock: AGENT })});
      const executable = ${JSON.stringify(join(directory.path, "zit"))};
      const env = { ...process.env, NOTES: ${JSON.stringify(notes)} };
      const zit = new ZitCli({ executable, env });
      // Each a turn of its event loop, in which what it wrote to the watchdog has left.
      setInterval(() => console.log("turn"), 20);
      await agent.guard("two", { waitMs: 10_000 }, (token) => zit.write(token, "two", ["slow"]));
    `;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    const turns = child.stdout.getReader();
    await until("it runs", () => pids().length === 2);
    for (let turn = 0; turn < 3; turn++) await turns.read();
    expect(pids().every(isRunning)).toBe(true);
    child.kill("SIGKILL");
    await until("all are gone", () => !pids().some(isRunning));
    // The agent hears of the end by itself: whoever is next waits for that.
    await agent.guard("two", { waitMs: 20_000 }, () => {});
  });

  test.each([
    ["/nowhere", "there is no such directory"],
    ["/dev/null", "it is no directory"],
    ["/dev/null/one", "a part of the path is no directory"],
  ])("read() and write() say so when the store's directory is %s", async (where, why) => {
    const cli = new ZitCli({ executable: "true", directory: () => where });
    const said = { kind: "misconfigured", message: expect.stringContaining(`"${where}": ${why}`) };
    expect(await failure(cli.read("one", "status"))).toMatchObject(said);
    for (const passLock of [undefined, false] as const) {
      await agent.guard("one", { passLock }, async (token) => {
        expect(await failure(cli.write(token, "one", []))).toMatchObject(said);
      });
    }
  });

  test.each(["/nowhere/zit", "/etc/passwd"])(
    "says what to do where the executable cannot be run: %s",
    async (executable) => {
      const cli = new ZitCli({ executable });
      const said = {
        kind: "misconfigured",
        message: expect.stringMatching(
          new RegExp(`^Cannot run ${executable}: .*; have the option \`executable\` name`),
        ),
      };
      expect(await failure(cli.read("two", "log"))).toMatchObject(said);
      for (const passLock of [AGENT, false] as const) {
        await agent.guard("two", { passLock }, async (token) => {
          expect(await failure(cli.write(token, "two", ["commit"]))).toMatchObject(said);
        });
      }
    },
  );
});

describe.skipIf(Bun.which("fossil") === null)("ZitCli with fossil", () => {
  test("commits with a token, and reads without", async () => {
    const home = join(directory.path, "home");
    mkdirSync(home);
    const repository = (store: string) => join(host.locks, store, "repo.fossil");
    const checkout = join(home, "checkout");
    const reads = ["timeline", "info", "ls"] as const;
    const fossil = new ZitCli({
      executable: "fossil",
      reads,
      directory: () => checkout,
      env: { PATH: process.env.PATH, HOME: home, USER: "you" },
    });
    mkdirSync(checkout);
    await agent.guard("two", { purpose: "import" }, async (token) => {
      const run = async (...args: string[]) => {
        const { status, stderr } = await fossil.write(token, "two", args);
        expect([status, stderr]).toEqual([0, ""]);
      };
      await run("init", "--admin-user", "you", repository("two"));
      await run("open", repository("two"), "--user", "you");
      writeFileSync(join(checkout, "page"), "hello\n");
      await run("add", "page");
      await run("commit", "-m", "guarded commit", "--user-override", "you", "--no-warnings");
    });
    const timeline = await fossil.read("two", "timeline", ["-n", "5"]);
    expect(timeline.stdout).toContain("guarded commit");
    expect((await fossil.read("two", "ls")).stdout.trim()).toBe("page");
    expect(await failure((fossil as ZitCli<string>).read("two", "commit", ["-m", "x"])))
      .toBeInstanceOf(InvalidError);
  });
});
