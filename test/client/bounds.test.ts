/** A caller's signal and timeoutMs bind a call from its first moment. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { within } from "../../src/client/bounds.ts";
import { connect } from "../../src/client/mod.ts";
import { onAbort } from "../../src/client/signals.ts";
import { RealAgent } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { DENO } from "./support/compilers.ts";

const MODULE = new URL("../../src/client/mod.ts", import.meta.url).pathname;
const FULL = new URL("support/full_socket.py", import.meta.url).pathname;
/** More than a very busy machine takes; nothing here is meant to be that long. */
const PATIENCE_MS = 60_000;

let directory: ReturnType<typeof tempDir>;
let module: string;
let host: RealAgent;
beforeAll(async () => {
  directory = tempDir();
  module = join(directory.path, "client.mjs");
  const { outputs } = await Bun.build({ entrypoints: [MODULE], target: "node" });
  await Bun.write(module, outputs[0]!);
  host = await RealAgent.start({ node: "bounds" });
  host.makeStore("one");
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
  directory[Symbol.dispose]();
});

const node = Bun.spawnSync([join(MODULE, "../../../scripts/node"), "22.23.5"]).stdout.toString();
const runtimes: [name: string, command: string[]][] = [
  ["Deno", [DENO, "run", "--no-lock", "-A"]],
  ["Node", node.trim() === "" ? [] : [node.trim()]],
];

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then((value) => {
    throw new Error(`not rejected: ${JSON.stringify(value)}`);
  }, (error) => error);
}

/** What a program with a client prints, a line each. */
async function printed(command: string[], socket: string, body: string): Promise<string[]> {
  const program = join(directory.path, `program-${Bun.hash(body)}.mjs`);
  await Bun.write(
    program,
    `import { Client, connect } from ${JSON.stringify(module)};
    import process from "node:process";
    const socket = ${JSON.stringify(socket)};
    ${body}`,
  );
  const child = Bun.spawn([...command, program], { stdout: "pipe", stdin: "ignore" });
  const text = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  return text.trim().split("\n");
}

describe("while connecting takes long, as to an agent that hangs", () => {
  let path: string;
  let full: Bun.Subprocess<"pipe", "pipe">;
  beforeAll(async () => {
    path = join(directory.path, "full.sock");
    full = Bun.spawn(["python3", FULL, path], { stdin: "pipe", stdout: "pipe" });
    await full.stdout.getReader().read();
  });
  afterAll(() => full.kill());

  // Not Bun: it says at once that nobody answers, of a full queue, too.
  describe.each(runtimes)("under %s", (_name, command) => {
    test.skipIf(command.length === 0)("signals and timeoutMs end every call", async () => {
      const lines = await printed(
        command,
        path,
        `
        // Connecting alone would take longer than the test may.
        const slow = { socket, timeoutMs: 600_000 };
        const soon = () => AbortSignal.timeout(50);
        const says = async (what, run) => {
          const client = new Client(slow);
          await run(client).then(() => console.log(what, "ended"), (error) =>
            console.log(what, error.name, /within \\d+ ms/.exec(error.message)?.[0] ?? ""));
          await client.close();
        };
        await says("guard", (c) => c.guard("one", { signal: soon() }, () => {}));
        await says("held", (c) => c.held("one", { timeoutMs: 50 }));
        await says("held", (c) => c.held("one", { signal: soon() }));
        await says("status", (c) => c.status({ timeoutMs: 50 }));
        await says("leases", (c) => c.leases("", { timeoutMs: 50 }).next());
        await says("stepdown", (c) => c.stepdown({ all: true }, { timeoutMs: 50 }));
        await says("reach", (c) => c.reach({ signal: soon() }));
        await says("connect", () => connect({ ...slow, signal: soon() }));
        await says("watch", (c) => c.watch(["one"], { signal: soon() }).next());
        await says("view", (c) => c.heldView(["one"]).close());
        await says("closed", (c) => { const held = c.held("one"); c.close(); return held; });
        // One that gives up does not give up for another.
        await says("two", async (c) => {
          const other = c.held("one", { timeoutMs: 2_000 });
          await c.held("one", { timeoutMs: 50 }).catch(() => {});
          await other;
        });
        `,
      );
      expect(lines.map((line) => line.trim())).toEqual([
        "guard TimeoutError",
        "held AgentUnreachable within 50 ms",
        "held TimeoutError",
        "status AgentUnreachable within 50 ms",
        "leases AgentUnreachable within 50 ms",
        "stepdown AgentUnreachable within 50 ms",
        "reach TimeoutError",
        "connect TimeoutError",
        "watch TimeoutError",
        "view ended",
        "closed InvalidError",
        "two AgentUnreachable within 2000 ms",
      ]);
    }, PATIENCE_MS);
  });
});

describe("times that nobody can wait", () => {
  test("are refused by the name that the caller gave", async () => {
    await using agent = await connect({ socket: host.socket });
    for (const waitMs of [NaN, -1]) {
      expect(await failure(agent.guard("one", { waitMs }, () => {}))).toMatchObject({
        kind: "invalid",
        message: expect.stringContaining(`waitMs: ${waitMs}; give milliseconds`),
      });
    }
    const endless = await failure(agent.stepdown({ store: "one" }, { forMs: Infinity }));
    expect(endless).toMatchObject({
      kind: "invalid",
      message: expect.stringContaining("forMs: Infinity"),
    });
  });

  test("are as long as can be where they are a wait", async () => {
    await using agent = await connect({ socket: host.socket });
    expect(await agent.guard("one", { waitMs: Infinity }, () => "written")).toBe("written");
  });
});

describe("a signal shared by many calls", () => {
  test.skipIf(node.trim() === "")("is no leak in the eyes of Node", async () => {
    const lines = await printed(
      [node.trim()],
      host.socket,
      `
      process.on("warning", ({ name, message }) => console.log(name, message));
      const { signal } = new AbortController();
      const agent = await connect({ socket });
      const wait = { waitMs: ${PATIENCE_MS}, signal };
      await Promise.all(Array.from({ length: 40 }, () =>
        agent.guard("one", wait, (token) => token.verify({ signal }))));
      await Promise.all(Array.from({ length: 40 }, () => agent.held("one", { signal })));
      await agent.close();
      // Warnings are told in a later turn.
      setTimeout(() => console.log("end"), 1);
      `,
    );
    expect(lines).toEqual(["end"]);
  }, PATIENCE_MS);

  test("has one listener, which tells each that has not stopped, and goes with the last", () => {
    const control = new AbortController();
    const { signal } = control;
    const listening = new Set<unknown>();
    let most = 0;
    const { addEventListener, removeEventListener } = signal;
    signal.addEventListener = ((type: "abort", listener: () => void) => {
      listening.add(listener);
      most = Math.max(most, listening.size);
      addEventListener.call(signal, type, listener);
    }) as typeof addEventListener;
    signal.removeEventListener = ((type: "abort", listener: () => void) => {
      listening.delete(listener);
      removeEventListener.call(signal, type, listener);
    }) as typeof removeEventListener;

    const heard: number[] = [];
    const stops = Array.from({ length: 20 }, (_, i) => onAbort([signal], () => heard.push(i)));
    for (const stop of stops) stop();
    expect([most, listening.size]).toEqual([1, 0]);

    const stop = onAbort([signal], () => heard.push(100));
    onAbort([signal], (reason) => heard.push(reason as number));
    onAbort([signal, new AbortController().signal], () => {
      heard.push(1);
      last();
    });
    // Stopped by one that was told before.
    const last = onAbort([signal], () => heard.push(200));
    stop();
    control.abort(7);
    expect(heard).toEqual([7, 1]);
    expect([most, listening.size]).toEqual([1, 0]);
  });
});

describe("within()", () => {
  test("gives what the promise comes to, else what ends the wait first", async () => {
    const never = new Promise<number>(() => {});
    const late = () => new Error("late");
    const failure = (promise: Promise<unknown>) => promise.then(() => null, (error) => error);
    expect(await within(Promise.resolve(3), {}, late)).toBe(3);
    expect(await failure(within(Promise.reject(new Error("own")), { timeoutMs: 1 }, late)))
      .toEqual(new Error("own"));
    expect(await failure(within(never, { timeoutMs: 1 }, late))).toEqual(new Error("late"));
    const signal = AbortSignal.abort("gone");
    expect(await failure(within(never, { signal, timeoutMs: 1 }, late))).toBe("gone");
  });
});
