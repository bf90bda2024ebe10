/** The scripts that people call: from anywhere, twice, at once. */
import { expect, test } from "bun:test";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AGENT, finish, until } from "../support/agent_under_test.ts";

const ROOT = join(import.meta.dir, "../..");

/** A checkout of its own with this one's node_modules; removed when disposed of. */
class Checkout {
  readonly root = mkdtempSync(join(tmpdir(), "zit-checkout-"));

  constructor() {
    for (const name of ["src", "scripts", "package.json", "package-lock.json", "deno.json"]) {
      cpSync(join(ROOT, name), join(this.root, name), { recursive: true });
    }
    symlinkSync(join(ROOT, "node_modules"), join(this.root, "node_modules"));
  }

  run(script: string, args: readonly string[] = []) {
    return finish(this.spawn(script, args));
  }

  spawn(script: string, args: readonly string[] = []) {
    return Bun.spawn({
      cmd: [join(this.root, "scripts", script), ...args],
      cwd: "/",
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
  }

  [Symbol.dispose](): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}

test("scripts/build builds once, also when called at once, and again when a source changed", async () => {
  using checkout = new Checkout();
  const agent = join(checkout.root, "dist/agent");
  const both = await Promise.all([checkout.run("build"), checkout.run("build")]);
  for (const each of both) expect(each).toMatchObject({ exit: 0, stdout: `${agent}\n` });
  expect(both.filter((each) => each.stderr.includes("compiling"))).toHaveLength(1);
  const built = statSync(agent).ino;
  expect(await checkout.run("build")).toMatchObject({ exit: 0, stderr: "" });
  expect(statSync(agent).ino).toBe(built);
  await Bun.write(join(checkout.root, "src/main.ts"), `console.log("changed");`);
  expect((await checkout.run("build")).stderr).toContain("compiling");
  expect(await finish(Bun.spawn({ cmd: [agent], stdout: "pipe", stderr: "pipe" })))
    .toMatchObject({ exit: 0, stdout: "changed\n" });
  expect(existsSync(join(checkout.root, ".cache/build.lock"))).toBe(true);
});

test("scripts/build fails with the compiler's words and leaves the last executable", async () => {
  using checkout = new Checkout();
  mkdirSync(join(checkout.root, "dist"));
  await Bun.write(join(checkout.root, "dist/agent"), "the last one");
  await Bun.write(join(checkout.root, "src/main.ts"), "import './nowhere.ts';");
  const result = await checkout.run("build");
  expect(result).toMatchObject({ exit: 1, stdout: "" });
  expect(result.stderr).toContain("nowhere.ts");
  expect(await Bun.file(join(checkout.root, "dist/agent")).text()).toBe("the last one");
});

test("scripts/run with no flags serves under ./run of the checkout, and guards there", async () => {
  using checkout = new Checkout();
  mkdirSync(join(checkout.root, "dist"));
  await checkout.run("build");
  const running = checkout.spawn("run");
  const socket = join(checkout.root, "run/agent.sock");
  const agent = (...args: string[]) =>
    finish(
      Bun.spawn({ cmd: [AGENT, "--socket", socket, ...args], stdout: "pipe", stderr: "pipe" }),
    );
  try {
    await until(() => existsSync(socket));
    expect(await agent("guard", "project", "--", "sh", "-c", "exit 7")).toMatchObject({ exit: 7 });
    expect((await agent("--check")).exit).toBe(0);
    expect(existsSync(join(checkout.root, "run/locks/project.lock"))).toBe(true);
  } finally {
    running.kill("SIGTERM");
  }
  expect((await finish(running)).exit).toBe(0);
});

test("scripts/run passes flags on", async () => {
  using checkout = new Checkout();
  const result = await checkout.run("run", ["--nats", "n1", "--standalone", "both"]);
  expect(result).toMatchObject({ exit: 64 });
});
