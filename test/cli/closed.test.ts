/**
 * The executable does not read its surroundings: whoever guards a write from a directory that others can
 * write must not run what they planted there.
 */
import { expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AGENT, FakeAgent, finish } from "../support/agent_under_test.ts";

/** A directory with everything that a Bun program might pick up, each of which would leave a trace. */
class Trap {
  readonly directory = mkdtempSync(join(tmpdir(), "zit-trap-"));
  readonly trace = join(this.directory, "sprung");
  readonly script = join(this.directory, "planted.js");

  constructor() {
    const spring = `require("fs").appendFileSync(${JSON.stringify(this.trace)}, "x");`;
    const plant = (name: string, text: string) => writeFileSync(join(this.directory, name), text);
    plant("planted.js", spring);
    plant("planted.ts", spring);
    plant(
      "planted.mjs",
      `import { appendFileSync } from "node:fs"; appendFileSync("${this.trace}", "x")`,
    );
    plant(".env", "ZIT_AGENT_SOCKET=/planted/agent.sock\nZIT_AGENT_NATS=planted:4222\n");
    plant(".env.local", "ZIT_AGENT_SOCKET=/planted/agent.sock\n");
    plant(".env.production", "ZIT_AGENT_SOCKET=/planted/agent.sock\n");
    plant("bunfig.toml", `preload = ["./planted.ts"]\n[run]\nbun = true\n`);
    plant("package.json", `{"name":"p","imports":{"#x":"./planted.js"},"main":"planted.js"}`);
    plant("tsconfig.json", `{"compilerOptions":{"paths":{"*":["./planted.ts"]}}}`);
    plant("index.js", spring);
    for (const library of ["libc.so.6", "libc.so", "libm.so.6", "libpthread.so.0"]) {
      plant(library, "not a library: loading it fails");
    }
    for (const name of ["commander", "valibot", "pino", "@nats-io/transport-node"]) {
      const folder = join(this.directory, "node_modules", name);
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, "index.js"), spring);
      writeFileSync(join(folder, "package.json"), `{"name":"${name}","main":"index.js"}`);
    }
    plant("sh", `#!/bin/sh\necho x >> ${this.trace}\n`);
    chmodSync(join(this.directory, "sh"), 0o755);
  }

  /** Runs the program, or another one, from inside the trap. */
  run(args: readonly string[], env: Record<string, string> = {}, program = AGENT) {
    return finish(Bun.spawn({
      cmd: [program, ...args],
      cwd: this.directory,
      env: { PATH: process.env.PATH!, ...env },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    }));
  }

  [Symbol.dispose](): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Variables that would have code run that is not ours. With them the program refuses to start. */
function inspectors(trap: Trap): Record<string, string>[] {
  const notify = "unix://inspector.sock";
  return [
    { BUN_INSPECT: "ws://127.0.0.1:6499/x" },
    { BUN_INSPECT: "ws+unix://inspector.sock?wait=1" },
    { BUN_INSPECT_PRELOAD: trap.script },
    { BUN_INSPECT_PRELOAD: join(trap.directory, "planted.mjs") },
    { BUN_INSPECT_CONNECT_TO: notify, BUN_INSPECT_NOTIFY: notify },
  ];
}

/** Variables by which a Bun program can be made to do something else. */
function environments(trap: Trap): Record<string, string>[] {
  const preload = `--preload ${trap.script}`;
  return [
    {},
    { BUN_OPTIONS: preload },
    { BUN_OPTIONS: `--preload=${trap.directory}/planted.mjs` },
    { BUN_OPTIONS: "--inspect-wait=unix://inspector.sock --cpu-prof --env-file=.env" },
    { BUN_OPTIONS: "--version" },
    { BUN_OPTIONS: `--eval 'require("fs").writeFileSync("${trap.trace}", "x")'` },
    { NODE_OPTIONS: `--require ${trap.script}` },
    { NODE_PATH: join(trap.directory, "node_modules") },
    { BUN_INSTALL: trap.directory, BUN_CONFIG_PRELOAD: trap.script },
    { DYLD_LIBRARY_PATH: trap.directory, XDG_CONFIG_HOME: trap.directory, HOME: trap.directory },
  ];
}

test("the trap springs under a program that is not closed, so that it can fail", async () => {
  using trap = new Trap();
  // Compiled elsewhere: what was planted changes what is compiled, too.
  using elsewhere = new Trap();
  rmSync(elsewhere.directory, { recursive: true });
  mkdirSync(elsewhere.directory);
  writeFileSync(join(elsewhere.directory, "main.ts"), "console.log(process.env.ZIT_AGENT_SOCKET)");
  const build = ["build", "--compile", "main.ts", "--outfile", "open"];
  expect((await elsewhere.run(build, {}, process.execPath)).exit).toBe(0);
  const { stdout } = await trap.run([], {}, join(elsewhere.directory, "open"));
  expect(stdout).toBe("/planted/agent.sock\n");
  expect(existsSync(trap.trace)).toBe(true);
});

test("a client command does what it does elsewhere, whatever was planted around it", async () => {
  await using agent = await FakeAgent.start();
  using trap = new Trap();
  for (const env of environments(trap)) {
    const result = await trap.run(["--check"], { ZIT_AGENT_SOCKET: agent.socket, ...env });
    expect({ env, ...result })
      .toMatchObject({ env, exit: 0, stdout: "healthy: node-1 holds 3 stores\n", stderr: "" });
    expect(existsSync(trap.trace)).toBe(false);
    expect(existsSync(join(trap.directory, "inspector.sock"))).toBe(false);
  }
});

test("guard and its watchdog do, too", async () => {
  await using agent = await FakeAgent.start();
  using trap = new Trap();
  for (const env of environments(trap)) {
    const result = await trap.run(["guard", "store", "--", "sh", "-c", "exit 6"], {
      ZIT_AGENT_SOCKET: agent.socket,
      ...env,
    });
    expect({ env, ...result }).toMatchObject({ env, exit: 6, stdout: "", stderr: "" });
    expect(existsSync(trap.trace)).toBe(false);
  }
});

test("the inspector's variables start nothing, neither what they name nor an inspector", async () => {
  await using agent = await FakeAgent.start();
  using trap = new Trap();
  for (const env of inspectors(trap)) {
    const result = await trap.run(["held", "s"], { ZIT_AGENT_SOCKET: agent.socket, ...env });
    // Either they do nothing, or the program refuses to run with them; never does it answer yes.
    expect(result.exit).toBe(1);
    expect(result.stdout === "s: not held\n" || result.stderr !== "").toBe(true);
    expect(existsSync(trap.trace)).toBe(false);
    expect(existsSync(join(trap.directory, "inspector.sock"))).toBe(false);
  }
});

test("run takes no settings from a planted .env", async () => {
  using trap = new Trap();
  const result = await trap.run(["run", "--node", "n"]);
  expect(result.exit).toBe(64);
  expect(result.stderr).toContain("Neither --nats nor --standalone");
});
