/** Clients in other languages, each against a real agent, by one list of exchanges. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { KINDS } from "../../src/lease/errors.ts";
import { finish } from "../support/agent_under_test.ts";
import { RealAgent } from "../support/real_agent.ts";
import { reap, reaped } from "../support/reaper.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";
import { exchanges, Scenes } from "./scenes.ts";

const HERE = import.meta.dir;
const ROOT = join(HERE, "../..");
const EXCHANGES = exchanges();
const FILES = EXCHANGES.map(({ file }) => file);
const HAS_GO = Bun.which("go") !== null;
if (!HAS_GO) {
  console.log(
    "skipped: the client in Go: there is no go here (scripts/test installs golang-go as root)",
  );
}

let scenes: Scenes;
let directory: ReturnType<typeof tempDir>;

beforeAll(async () => {
  directory = tempDir();
  scenes = await Scenes.start();
}, 60_000);

afterAll(async () => {
  await scenes[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

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
  const { stdout, stderr } = await finish(child);
  return { status: await child.exited, stdout, stderr };
}

/** The programs that replay exchanges. */
const REPLAYS: Record<string, () => Promise<string[]>> = {
  Python: () => Promise.resolve(["python3", join(HERE, "python/replay.py")]),
  TypeScript: () => Promise.resolve([process.execPath, join(HERE, "typescript/replay.ts")]),
  ...(HAS_GO ? { Go: async () => [await goProgram("replay")] } : {}),
};

/** What a program says that replayed all of them as they are: the last cannot receive descriptors. */
function allOk(language: string): string {
  return EXCHANGES.map(({ name, needs }) =>
    language === "TypeScript" && needs.includes("pass_lock") ? `skipped ${name}\n` : `ok ${name}\n`
  ).join("");
}

describe("the exchanges", () => {
  const steps = EXCHANGES.flatMap((exchange) => exchange.steps);

  test("call every method, with every parameter", () => {
    const docs = readFileSync(join(ROOT, "docs/protocol.md"), "utf8");
    const methods = [...docs.matchAll(/^### (\w+)$/gm)].map(([, name]) => name!);
    expect(methods.length).toBe(11);
    const sent = steps.map((step) => step.send).filter((send) => send !== undefined);
    expect(new Set(sent.map(({ method }) => method))).toEqual(new Set([...methods, "gaurd"]));
    const named = (method: string) =>
      new Set(
        sent.filter((each) => each.method === method && !Array.isArray(each.params))
          .flatMap(({ params }) => Object.keys(params)),
      );
    for (const [method, params] of Object.entries(PARAMETERS)) {
      expect([...named(method)], method).toEqual(expect.arrayContaining(params));
    }
  });

  test("meet every kind of refusal, every error of JSON-RPC and every notification", () => {
    const received = steps.map((step) => step.receive).filter((each) => each !== undefined);
    const errors = received.map(({ error }) => error).filter((error) => error !== undefined);
    const kinds = errors.map(({ data }) => data?.kind).filter((kind) => kind !== undefined);
    expect(new Set(kinds)).toEqual(new Set(Object.keys(KINDS)));
    const codes = errors.map(({ code }) => code);
    for (const { code } of Object.values(KINDS)) expect(codes).toContain(code);
    // But -32603: a fault of the agent is not to be had by asking.
    for (const code of [-32700, -32600, -32601]) expect(codes).toContain(code);
    expect(new Set(received.map(({ method }) => method))).toEqual(
      new Set([undefined, "expiring", "renewed", "lost", "lease"]),
    );
  });

  test.each(Object.keys(REPLAYS))("are replayed by the client in %s", async (language) => {
    const variables = await scenes.variablesIn(directory.path);
    const replayed = await run([...await REPLAYS[language]!(), variables, ...FILES]);
    expect(replayed.stderr).toBe("");
    expect(replayed.stdout).toBe(allOk(language));
    expect(replayed.status).toBe(0);
  }, 240_000);

  test.each(Object.keys(REPLAYS))(
    "tell a wrong answer, in %s: each fails that wants another one",
    async (language) => {
      const variables = await scenes.variablesIn(directory.path);
      const wrong = EXCHANGES.map(({ name, steps, needs }) => {
        const file = join(directory.path, `${name}.json`);
        writeFileSync(file, JSON.stringify({ needs, steps: doctored(steps) }));
        return file;
      });
      const replayed = await run([...await REPLAYS[language]!(), variables, ...wrong]);
      expect(replayed.status).toBe(1);
      expect(replayed.stdout).toBe(allOk(language).replaceAll(/^ok .*\n/gm, ""));
      for (const { name, needs } of EXCHANGES) {
        if (language === "TypeScript" && needs.includes("pass_lock")) continue;
        expect(replayed.stderr).toContain(`${name}, step `);
      }
    },
    240_000,
  );

  test.each(Object.keys(REPLAYS))(
    "tell in %s what else is not as it should be",
    async (language) => {
      const held = { jsonrpc: "2.0", id: 1, method: "held", params: { stores: [] } };
      const answer = { on: "a", receive: { id: 1, result: { held: {} } } };
      const file = join(directory.path, "free");
      writeFileSync(file, "");
      const wrong: Record<string, unknown[]> = {
        unread: [{ on: "a", send: held }, answer, { on: "a", unread: 1 }],
        greater: [{ greater: 1, than: 1 }],
        lock: [{ lock: file, free: false }],
        closed: [{ on: "a", send: held }, { on: "a", closed: true }],
        "two of one": [{ on: "a", send: held }, answer, { on: "a", shutdown: true }, answer],
        "too few": [{ on: "a", send: held }, { on: "a", shutdown: true }, {
          on: "a",
          receive: { id: 1, result: { held: { x: true } } },
        }],
      };
      const { guard } = JSON.parse(readFileSync(await scenes.variablesIn(directory.path), "utf8"));
      const variables = join(directory.path, "wrong-variables.json");
      writeFileSync(
        variables,
        JSON.stringify(Object.fromEntries(Object.keys(wrong).map((name) => [name, guard]))),
      );
      const files = Object.entries(wrong).map(([name, steps]) => {
        const path = join(directory.path, `${name}.json`);
        writeFileSync(path, JSON.stringify({ steps }));
        return path;
      });
      const replayed = await run([...await REPLAYS[language]!(), variables, ...files]);
      expect([replayed.status, replayed.stdout]).toEqual([1, ""]);
      for (const [name, steps] of Object.entries(wrong)) {
        expect(replayed.stderr).toContain(`${name}, step ${steps.length}: `);
      }
    },
    240_000,
  );
});

/** The parameters of each method, as docs/protocol.md has them. */
const PARAMETERS = {
  guard: ["store", "wait_ms", "shared", "wait_lease", "pass_lock", "follow", "purpose"],
  verify: ["token", "store", "pass_lock"],
  release: ["token"],
  held: ["store", "stores"],
  holder: ["store"],
  watch: ["stores"],
  unwatch: ["subscription"],
  leases: ["prefix", "after", "limit"],
  history: ["store"],
  stepdown: ["store", "all", "for_ms"],
};

/**
 * An exchange up to its first answer, of which something else is wanted. Nothing is asked any more, so
 * the agent closes the connection then, and nobody has to wait to see that nothing else comes.
 */
// deno-lint-ignore no-explicit-any
function doctored(steps: readonly any[]): unknown[] {
  const first = steps.findIndex((step) => step.receive !== undefined);
  const { on } = steps[first];
  const wanted = structuredClone(steps[first]);
  doctor(wanted.receive.result ?? wanted.receive.error ?? wanted.receive);
  return [...steps.slice(0, first), { on, shutdown: true }, wanted];
}

/** Makes the first value in an object another one. */
function doctor(value: Record<string, unknown>): void {
  const [name, first] = Object.entries(value)[0]!;
  if (typeof first === "object" && first !== null) {
    return doctor(first as Record<string, unknown>);
  }
  value[name] = "doctored";
}

describe("the client in Python", () => {
  test("guards a write, and is told when it must stop", async () => {
    const alpha = scenes.usual;
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
