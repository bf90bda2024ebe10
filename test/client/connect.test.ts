import { describe, expect, test } from "bun:test";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  AgentUnreachable,
  defaultSocketPath,
  InvalidError,
  openConnection,
} from "../../src/client/mod.ts";
import { spawnProgram, TemporaryDirectory, TestServer } from "../socket/support/server.ts";

const CLIENT = new URL("../../src/client/mod.ts", import.meta.url).pathname;

async function refusal(path: string, timeoutMs?: number): Promise<AgentUnreachable> {
  const error = await openConnection({ socket: path, timeoutMs }).then(
    () => null,
    (error) => error,
  );
  expect(error).toBeInstanceOf(AgentUnreachable);
  expect(error).toMatchObject({ kind: "unavailable", code: -32000, exit: 69 });
  expect(error.message).toContain(path);
  return error;
}

/** A program that asks for `held` and prints what it gets, and the refusal of a bad parameter. */
function program(client: string, path: string): string {
  return `
    import { openConnection } from ${JSON.stringify(client)};
    const agent = await openConnection({ socket: ${JSON.stringify(path)} });
    console.log(JSON.stringify(await agent.call("held", { store: "held" })));
    await agent.call("held", { store: "-" }).catch((error) => console.log(error.name, error.exit));
    await agent.close();
  `;
}

/** Python that listens with a queue of one connection, and fills it. */
const FULL_QUEUE = `
import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(0)
c = socket.socket(socket.AF_UNIX)
c.connect(sys.argv[1])
print("full", flush=True)
time.sleep(30)
`;

/** Runs a command beside the loop that serves it. */
async function output(...command: string[]): Promise<string> {
  const child = Bun.spawn(command, { stdout: "pipe", stderr: "inherit" });
  return await new Response(child.stdout).text();
}

/** The client in one file, as a package would carry it. */
async function bundle(directory: string): Promise<string> {
  const built = await Bun.build({ entrypoints: [CLIENT], target: "node", outdir: directory });
  return built.outputs[0].path;
}

describe("openConnection()", () => {
  test("names the socket and what to do when there is none", async () => {
    using directory = new TemporaryDirectory();
    const error = await refusal(join(directory.path, "agent.sock"));
    expect(error.message).toContain(
      "there is no such socket; start the agent (systemctl start zit-agent, or agent run), " +
        "or name its socket by the option `socket` or ZIT_AGENT_SOCKET",
    );
    const deeper = await refusal(join(directory.path, "none", "agent.sock"));
    expect(deeper.message).toContain("there is no such socket");
  });

  test("says so when nobody listens", async () => {
    using directory = new TemporaryDirectory();
    const path = join(directory.path, "agent.sock");
    const child = spawnProgram("serve.ts", path);
    await child.stdout.getReader().read();
    child.kill("SIGKILL");
    await child.exited;
    expect((await refusal(path)).message).toContain("nobody answers there");
  });

  test.each([["", "is empty"], ["/a\0b", "NUL"], [`/${"x".repeat(107)}`, "has 108 bytes"]])(
    "refuses %p as invalid: there can be no socket of that path",
    async (path, why) => {
      const error = await openConnection({ socket: path }).then(() => null, (error) => error);
      expect(error).toBeInstanceOf(InvalidError);
      expect(error.message).toContain(why);
    },
  );

  test.skipIf(process.getuid!() !== 0)("says so when there is no permission", async () => {
    await using server = await TestServer.start({});
    chmodSync(join(server.path, ".."), 0o755);
    const script = `
      import { openConnection } from ${JSON.stringify(CLIENT)};
      process.setgroups([]);
      process.setgid(65_534);
      process.setuid(65_534);
      await openConnection({ socket: ${
      JSON.stringify(server.path)
    } }).catch((e) => console.log(e.message));
    `;
    expect(await output(process.execPath, "-e", script)).toContain(
      `Cannot reach the agent at ${server.path}: no permission`,
    );
  });

  test.skipIf(Bun.which("node") === null)("works under Node, without a dependency", async () => {
    using directory = new TemporaryDirectory();
    await using server = await TestServer.start({
      held: (_params, _connection, reply) => reply.ok({ held: true }),
    });
    const client = await bundle(directory.path);
    const text = await Bun.file(client).text();
    const imports = [...text.matchAll(/from\s*"([^"]+)"/g)].map(([, name]) => name);
    expect(imports.filter((name) => !name.startsWith("node:"))).toEqual([]);
    expect(text).not.toContain("valibot");
    const script = join(directory.path, "program.mjs");
    writeFileSync(script, program(client, server.path));
    expect(await output("node", script)).toBe('{"held":true}\nInvalidError 64\n');
  });

  // Bun does not tell a full queue from a dead socket.
  test.skipIf(Bun.which("node") === null)(
    "waits while the agent's queue is full, and gives up in time (Node)",
    async () => {
      using directory = new TemporaryDirectory();
      const path = join(directory.path, "agent.sock");
      const child = Bun.spawn(["python3", "-c", FULL_QUEUE, path]);
      await child.stdout.getReader().read();
      const script = join(directory.path, "program.mjs");
      writeFileSync(
        script,
        `import { openConnection } from ${JSON.stringify(await bundle(directory.path))};
        const options = { socket: ${JSON.stringify(path)}, timeoutMs: 100 };
        await openConnection(options).catch((error) => console.log(error.name, error.message));`,
      );
      expect(await output("node", script)).toStartWith(
        `AgentUnreachable The agent at ${path} did not take the connection within 100 ms`,
      );
      child.kill();
      await child.exited;
    },
  );

  test("works under Deno", async () => {
    using directory = new TemporaryDirectory();
    await using server = await TestServer.start({
      held: (_params, _connection, reply) => reply.ok({ held: true }),
    });
    const deno = new URL("../../node_modules/.bin/deno", import.meta.url).pathname;
    const script = join(directory.path, "program.mjs");
    writeFileSync(script, program(CLIENT, server.path));
    const printed = await output(deno, "run", "--no-config", "--no-check", "-A", script);
    expect(printed).toBe('{"held":true}\nInvalidError 64\n');
  }, 30_000);
});

describe("defaultSocketPath()", () => {
  test("takes ZIT_AGENT_SOCKET, else the system's for root, else the user's", () => {
    const env = { ZIT_AGENT_SOCKET: "/x.sock", XDG_RUNTIME_DIR: "/run/user/5" };
    expect(defaultSocketPath(env, 0)).toBe("/x.sock");
    expect(defaultSocketPath({ ...env, ZIT_AGENT_SOCKET: undefined }, 0)).toBe(
      "/run/zit-agent/agent.sock",
    );
    expect(defaultSocketPath({ ...env, ZIT_AGENT_SOCKET: "" }, 5)).toBe(
      "/run/user/5/zit-agent/agent.sock",
    );
  });

  test("throws when the environment does not tell", () => {
    expect(() => defaultSocketPath({}, 5)).toThrow(InvalidError);
    expect(() => defaultSocketPath({ XDG_RUNTIME_DIR: "" }, 5)).toThrow(
      "XDG_RUNTIME_DIR is not set",
    );
  });
});
