/** Clients in other languages, each against a real agent, by one list of exchanges. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NatsServer } from "../support/nats.ts";
import { RealAgent } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";

const HERE = import.meta.dir;
const ROOT = join(HERE, "../..");
const EXCHANGES = readdirSync(join(HERE, "exchanges")).sort();
const FILES = EXCHANGES.map((name) => join(HERE, "exchanges", name));
const NAMES = EXCHANGES.map((name) => name.replace(".json", ""));
const HAS_GO = Bun.which("go") !== null;
if (!HAS_GO) {
  console.log(
    "skipped: the client in Go: there is no go here (scripts/test installs golang-go as root)",
  );
}

let nats: NatsServer;
let alpha: RealAgent;
let beta: RealAgent;
let directory: ReturnType<typeof tempDir>;

beforeAll(async () => {
  nats = await NatsServer.start();
  directory = tempDir();
  // Long enough for a busy machine, and short enough to see renewals.
  const flags = ["--ttl", "6s", "--address"];
  alpha = await RealAgent.start({
    node: "alpha",
    nats: nats.url,
    flags: [...flags, "http://alpha.example"],
  });
  beta = await RealAgent.start({
    node: "beta",
    nats: nats.url,
    flags: [...flags, "http://beta.example"],
  });
});

afterAll(async () => {
  await alpha[Symbol.asyncDispose]();
  await beta[Symbol.asyncDispose]();
  await nats.stop();
  directory[Symbol.dispose]();
});

/** What each exchange begins with, for one run: stores that nobody has asked about. */
async function variablesFor(run: string): Promise<string> {
  const client = await beta.client();
  const all: Record<string, Record<string, string>> = {};
  for (const name of NAMES) {
    const variables = {
      store: `${run}/${name}/store`,
      other: `${run}/${name}/other`,
      missing: `${run}/${name}/missing`,
      foreign: `${run}/${name}/foreign`,
      node: "alpha",
      foreign_node: "beta",
      foreign_address: "http://beta.example",
    };
    for (const store of [variables.store, variables.other, variables.foreign]) {
      alpha.makeStore(store);
    }
    await until(
      "beta holds it",
      async () => (await client.call("held", { store: variables.foreign })).held,
    );
    all[name] = variables;
  }
  const path = join(directory.path, `${run}.json`);
  writeFileSync(path, JSON.stringify(all));
  return path;
}

async function run(
  command: string[],
  options: { cwd?: string; env?: Record<string, string> } = {},
): Promise<{ status: number; stdout: string; stderr: string }> {
  const child = Bun.spawn(command, {
    ...options,
    env: { ...process.env, ...options.env },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr, status] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { status, stdout, stderr };
}

const ALL_OK = NAMES.map((name) => `ok ${name}\n`).join("");

describe("the exchanges", () => {
  test("are those that the clients are judged by", () => {
    expect(NAMES.length).toBeGreaterThanOrEqual(10);
    const methods = FILES.flatMap((file) =>
      JSON.parse(readFileSync(file, "utf8")).steps.map((step: { send?: { method: string } }) =>
        step.send?.method
      )
    );
    for (
      const method of [
        ...["guard", "verify", "release", "held", "holder", "watch", "unwatch", "status"],
        ...["leases", "history", "stepdown"],
      ]
    ) expect(methods).toContain(method);
  });

  test("tell a wrong answer: a replay of one that expects otherwise fails", async () => {
    const path = join(directory.path, "wrong.json");
    const send = { jsonrpc: "2.0", id: 1, method: "held", params: { stores: [] } };
    const receive = { id: 1, result: { held: { x: true } } };
    // What was answered is not what is wanted, and then the agent closes: no 10 s to wait.
    writeFileSync(
      path,
      JSON.stringify({
        steps: [{ on: "a", send }, { on: "a", shutdown: true }, { on: "a", receive }],
      }),
    );
    const variables = join(directory.path, "wrong-variables.json");
    writeFileSync(variables, '{"wrong":{}}');
    const script = join(HERE, "python/replay.py");
    const python = await run(["python3", script, alpha.socket, variables, path]);
    expect(python.status).toBe(1);
    expect(python.stderr).toContain("wrong, step 3");
    if (!HAS_GO) return;
    const go = await run([await goProgram("replay"), alpha.socket, variables, path]);
    expect(go.status).toBe(1);
    expect(go.stderr).toContain("wrong: step 3");
  }, 120_000);
});

describe("the client in Python", () => {
  test("replays every exchange", async () => {
    const variables = await variablesFor("python");
    const script = join(HERE, "python/replay.py");
    const replayed = await run(["python3", script, alpha.socket, variables, ...FILES]);
    expect(replayed.stderr).toBe("");
    expect(replayed.stdout).toBe(ALL_OK);
  });

  test("guards a write, and is told when it must stop", async () => {
    for (const store of ["py/one", "py/two"]) alpha.makeStore(store);
    const script = `
import os, sys
from agent_client import Agent, AgentError
with Agent(sys.argv[1]) as agent:
    with agent.guard("py/one", wait_ms=10000) as token:
        token.verify()
        print(token.store, token.epoch > 0, token.stop.is_set())
        try:
            with agent.guard("py/one"):
                pass
        except AgentError as error:
            print(error.kind, error.retryable)
    try:
        token.verify()
    except AgentError as error:
        print(error.kind, error.retryable)
    try:
        with agent.guard("py/two", wait_ms=10000) as token:
            os.unlink(sys.argv[2] + "/py/two/lease.lock")
            try:
                token.verify()
            except AgentError as error:
                print(error.kind, token.stop.wait(10), token.lost is not None)
    except AgentError as error:
        print("after all:", error.kind)
`;
    const env = { PYTHONPATH: join(HERE, "python") };
    const ran = await run(["python3", "-c", script, alpha.socket, alpha.locks], { env });
    expect(ran.stderr).toBe("");
    expect(ran.stdout.trim().split("\n")).toEqual([
      ...["py/one True False", "busy True", "no_token False", "lost True True"],
      "after all: lost",
    ]);
  });
});

let built: Promise<string> | undefined;

/** One of the programs in Go, compiled once. The compiler's cache outlives the test. */
async function goProgram(name: string): Promise<string> {
  built ??= (async () => {
    const cache = join(ROOT, ".cache/go");
    mkdirSync(cache, { recursive: true });
    const compiled = await run(["go", "build", "-o", directory.path, "./..."], {
      cwd: join(HERE, "go"),
      env: { GOCACHE: cache, CGO_ENABLED: "0", GOFLAGS: "-trimpath", GOTOOLCHAIN: "local" },
    });
    if (compiled.status !== 0) throw new Error(compiled.stderr);
    return directory.path;
  })();
  return join(await built, name);
}

describe.skipIf(!HAS_GO)("the client in Go", () => {
  test("replays every exchange", async () => {
    const program = await goProgram("replay");
    const variables = await variablesFor("go");
    const replayed = await run([program, alpha.socket, variables, ...FILES]);
    expect(replayed.stderr).toBe("");
    expect(replayed.stdout).toBe(ALL_OK);
  }, 120_000);

  test(
    "runs a command that has the lock itself, also when client and agent are killed",
    async () => {
      const program = await goProgram("guard");
      await using host = await RealAgent.start({ node: "lonely" });
      const lock = join(host.makeStore("one"), "lease.lock");
      const command = 'echo "$ZIT_LEASE_STORE $(readlink /proc/self/fd/$ZIT_LEASE_LOCK_FD) $$";' +
        " exec sleep 60";
      const child = Bun.spawn([program, host.socket, "one", "sh", "-c", command], {
        stdin: "ignore",
        stdout: "pipe",
      });
      const { value } = await child.stdout.getReader().read();
      const [store, path, pid] = new TextDecoder().decode(value).trim().split(" ");
      reap(Number(pid));
      expect([store, path]).toEqual(["one", lock]);
      const free = () => Bun.spawnSync(["flock", "-n", lock, "true"]).exitCode === 0;
      child.kill("SIGKILL");
      await host.end("SIGKILL");
      await child.exited;
      expect(free()).toBe(false);
      process.kill(Number(pid), "SIGKILL"); // the command goes, and its lock with it
      await until("the lock is free", free);
      reaped(Number(pid));
    },
    120_000,
  );
});
