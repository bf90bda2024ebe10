/** The package as others install it: packed, unpacked, imported by its name. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { RealAgent } from "../support/real_agent.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const DENO = join(ROOT, "node_modules/.bin/deno");

/** Uses what there is to use, and prints what came of it. */
const PROGRAM = `
import { connect, LostError, NoTokenError, requireToken, unguarded, ZitCli } from
  "zit-lease-agent/client";
const agent = await connect({ socket: process.env.SOCKET });
const say = (...what) => console.log(...what);
let kept;
await agent.guard("one", { waitMs: 1000 }, async (token) => {
  kept = token;
  requireToken(token, "one");
  await token.verify();
  for (const forged of [{ ...token }, structuredClone(token), Object.create(token)]) {
    try { requireToken(forged, "one"); say("taken"); } catch (error) { say(error.name); }
  }
  const zit = new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"] });
  const { stdout, status } = await zit.write(token, "one", ["echo $ZIT_LEASE_STORE; exit 3"]);
  say(stdout.trim(), status);
});
try { requireToken(kept, "one"); } catch (error) { say(error instanceof NoTokenError); }
say(await agent.held("one"), (await agent.holder("one")).node);
const view = agent.heldView(["one", "two"]);
await view.ready;
// "two" is acquired while we look.
while (!view.held("two")) await new Promise((resolve) => setTimeout(resolve, 1));
say(view.heldOf(["two", "three", "one"]).join());
await view.close();
say(view.held("one"));
for await (const news of agent.watch(["one"])) { say(news.type, news.held); break; }
// A program that is to be killed with its guard.
const zit = new ZitCli({ executable: "/bin/sh", prefix: () => ["-c"], killAfterMs: 100 });
const started = Date.now();
let run;
await agent.guard("one", { waitMs: 1000 }, (token) => {
  run = zit.write(token, "one", ["trap '' TERM; sleep 30 & wait; sleep 30"]).catch((e) => e.name);
  return new Promise((resolve) => setTimeout(resolve, 300));
});
say(await run, Date.now() - started < 10_000);
say(unguarded("a test").unguarded);
await agent.close();
`;

const EXPECTED = [
  ...["NoTokenError", "NoTokenError", "NoTokenError", "one 3", "true", "true pack", "two,one"],
  ...["false", "lease true", "NoTokenError true", "a test"],
];

let directory: string;
let host: RealAgent;

beforeAll(async () => {
  host = await RealAgent.start({ node: "pack" });
  for (const store of ["one", "two"]) host.makeStore(store);
  directory = mkdtempSync(join(tmpdir(), "package-"));
  Bun.spawnSync([join(ROOT, "scripts/build-client")], { stderr: "ignore" });
  // What `npm pack` would put in, by the list that it reads.
  const target = join(directory, "node_modules/zit-lease-agent");
  const { files } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  for (const name of ["package.json", ...files]) {
    const to = join(target, name);
    mkdirSync(dirname(to), { recursive: true });
    Bun.spawnSync(["cp", "-r", join(ROOT, name), to]);
  }
  writeFileSync(join(directory, "package.json"), '{ "type": "module" }');
  writeFileSync(join(directory, "program.mjs"), PROGRAM);
});

afterAll(async () => {
  await host[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

async function run(...command: string[]): Promise<string[]> {
  const child = Bun.spawn([...command, "program.mjs"], {
    cwd: directory,
    env: { PATH: process.env.PATH!, HOME: directory, SOCKET: host.socket },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if (await child.exited !== 0) throw new Error(`${command[0]} failed: ${stdout}${stderr}`);
  expect(stderr).toContain('UNGUARDED reason="a test"');
  return stdout.trimEnd().split("\n");
}

describe("the package", () => {
  test("works under Bun", async () => {
    expect(await run(process.execPath, "run")).toEqual(EXPECTED);
  }, 30_000);

  test.skipIf(Bun.which("node") === null)("works under Node", async () => {
    expect(await run("node")).toEqual(EXPECTED);
  }, 30_000);

  test("works under Deno", async () => {
    expect(await run(DENO, "run", "--no-lock", "--no-prompt", "-A")).toEqual(EXPECTED);
  }, 30_000);

  test("works under Deno with no more permissions than it needs", async () => {
    const needs = ["--allow-env", "--allow-sys=uid", "--allow-net", "--allow-run"];
    const files = [`--allow-read=${host.dir},${directory}`, `--allow-write=${host.dir}`];
    // Not /proc/uptime, so on the clock of last resort.
    const printed = await run(DENO, "run", "--no-lock", "--no-prompt", ...needs, ...files);
    expect(printed).toEqual(EXPECTED);
  }, 30_000);

  test("needs no package and no native code", () => {
    const text = readFileSync(join(ROOT, "dist/client.js"), "utf8");
    const imports = [...text.matchAll(/\bfrom\s*"([^"]+)"|\bimport\("([^"]+)"\)/g)].map((m) =>
      m[1] ?? m[2]
    );
    expect(imports.length).toBeGreaterThan(3);
    expect(imports.filter((name) => !name.startsWith("node:"))).toEqual([]);
    expect(text).not.toMatch(/bun:|\bBun\.|\bDeno\.|dlopen/);
  });
});
