/** Where nothing tells the socket's place: wrong use, told alike by every command. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { AGENT, finish } from "../support/agent_under_test.ts";
import { tempDir } from "../support/temp_dir.ts";

const NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
const dir = tempDir();
let program: string;

beforeAll(() => {
  // Where anybody may run it: the checkout need not be readable by others.
  program = join(dir.path, "agent");
  cpSync(AGENT, program);
  Bun.spawnSync(["chmod", "755", dir.path, program]);
});
afterAll(() => dir[Symbol.dispose]());

function runAsNobody(args: readonly string[], env: Record<string, string>) {
  return finish(Bun.spawn({
    cmd: [...process.getuid!() === 0 ? NOBODY : [], program, ...args],
    env: { PATH: process.env.PATH!, ...env },
    cwd: "/",
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  }));
}

const NATS = ["--nats", "nats://127.0.0.1:1", "--node", "n"];
const USES = [
  ["run", "--standalone", "x"],
  ["run", "--standalone", "x", "--print-config"],
  ["run", "--standalone", "x", "--print-config", "--json"],
  ["run", ...NATS],
  ["run", ...NATS, "--print-config"],
  ["status"],
  ["--check"],
  ["guard", "s", "--", "true"],
  ["watch"],
];

test.each(USES.flatMap((args) => [[args, {}], [args, { XDG_RUNTIME_DIR: "" }]] as const))(
  "agent %p with %p, not as root: exit 64, and names --socket and its twin",
  async (args, env) => {
    const result = await runAsNobody(args, env);
    expect(result).toMatchObject({ exit: 64, stdout: "" });
    expect(result.stderr).toStartWith("agent: Cannot tell where the agent's socket is");
    expect(result.stderr).toContain("XDG_RUNTIME_DIR is not set");
    expect(result.stderr).toContain("name the socket by --socket or ZIT_AGENT_SOCKET");
    expect(result.stderr.trim().split("\n")).toHaveLength(1);
  },
);

test("agent run without anything tells first what matters most, and takes a socket that is named", async () => {
  expect((await runAsNobody(["run"], {})).stderr).toStartWith("agent: Neither --nats nor");
  const config = ["run", "--standalone", "x", "--print-config"];
  for (
    const [args, env] of [
      [["--socket", "/x.sock", ...config], {}],
      [[...config, "--socket", "/x.sock"], {}],
      [config, { ZIT_AGENT_SOCKET: "/x.sock" }],
    ] as const
  ) {
    const { exit, stdout } = await runAsNobody(args, env);
    expect([exit, /^socket +(\S+)/m.exec(stdout)?.[1]]).toEqual([0, "/x.sock"]);
  }
});
