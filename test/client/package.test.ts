/** The package as others install it: packed, unpacked, imported by its name. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { AGENT, RealAgent } from "../support/real_agent.ts";
import {
  type Compiler,
  DENO,
  denoCheck,
  tsc,
  verdictOf,
  writePrograms,
} from "./support/compilers.ts";
import { COMPILES, COMPILES_AND_IS_REFUSED, DOES_NOT_COMPILE } from "./support/programs.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

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
// What a program leaves behind in its group ends with the guard.
let left;
await agent.guard("one", { waitMs: 1000 }, async (token) => {
  const script = "sh -c 'trap : TERM; while :; do sleep 0.05; done' >/dev/null 2>&1 & echo $!";
  left = (await zit.write(token, "one", [script])).stdout.trim();
  say(await zit.write(token, "one", ["a\\0b"]).catch((error) => error instanceof Error));
});
const probe = new ZitCli({ executable: "/bin/sh", reads: ["-c"] });
const alive = "test -d /proc/PID && ! grep -q '^State:.[ZX]' /proc/PID/status"
  .replaceAll("PID", left);
say(left > 1, (await probe.read("one", "-c", [alive])).status);
// The lock is the program's own, by way of the agent's executable, unless it is not wanted.
for (const passLock of [undefined, process.env.AGENT, false]) {
  await agent.guard("one", { passLock }, async (token) => {
    const script = "readlink /proc/self/fd/$ZIT_LEASE_LOCK_FD; cat; exit 5";
    const { stdout, status } = await zit.write(token, "one", [script], { input: "input" });
    say(stdout === token.lockPath + "\\ninput", status);
  });
}
await agent.guard("one", {}, async (token) => {
  const nothing = new ZitCli({ executable: "/nowhere" }).write(token, "one", []);
  say(await nothing.catch((error) => error.message.split(";")[0]));
});
await agent.close();
`;

const EXPECTED = [
  ...["NoTokenError", "NoTokenError", "NoTokenError", "one 3", "true", "true pack", "two,one"],
  ...["false", "lease true", "NoTokenError true", "a test", "true"],
  ...["true 1", "true 5", "true 5", "false 5", "Cannot run /nowhere: there is no such command"],
];

let directory: string;
let host: RealAgent;

beforeAll(async () => {
  host = await RealAgent.start({ node: "pack" });
  for (const store of ["one", "two"]) host.makeStore(store);
  directory = mkdtempSync(join(tmpdir(), "package-"));
  await install(directory);
  writeFileSync(join(directory, "program.mjs"), PROGRAM);
}, 180_000);

afterAll(async () => {
  await host[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** Packs this checkout as a registry would get it, and installs that into an empty folder. */
async function install(into: string): Promise<void> {
  const scratch = mkdtempSync(join(tmpdir(), "tarball-"));
  const npm = Bun.which("npm") !== null;
  const pack = npm ? "npm pack --silent --pack-destination" : "bun pm pack --quiet --destination";
  await succeed([...pack.split(" "), scratch], ROOT);
  const [tarball] = readdirSync(scratch).map((name) => join(scratch, name));
  // Offline: there is nothing else to install.
  const add = npm ? "npm install --offline --no-audit --no-fund --loglevel=error" : "bun add";
  await succeed([...add.split(" "), tarball!], into);
  rmSync(scratch, { recursive: true });
}

async function succeed(command: string[], cwd: string): Promise<string> {
  const env = { ...process.env, PATH: `${join(ROOT, "node_modules/.bin")}:${process.env.PATH}` };
  const child = Bun.spawn(command, { cwd, env, stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if (await child.exited !== 0) throw new Error(`${command.join(" ")}: ${stdout}${stderr}`);
  return stdout;
}

async function run(...command: string[]): Promise<string[]> {
  const given = command.at(-1)!.endsWith(".mjs");
  const child = Bun.spawn(given ? command : [...command, "program.mjs"], {
    cwd: directory,
    env: {
      PATH: `${dirname(AGENT)}:${process.env.PATH}`, // `agent`, by which the lock passes
      ...{ HOME: directory, SOCKET: host.socket, AGENT },
      NODE_NO_WARNINGS: "1", // it does not silence what is told of unguarded writes
    },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if (await child.exited !== 0) throw new Error(`${command[0]} failed: ${stdout}${stderr}`);
  if (!given) expect(stderr).toContain('UNGUARDED reason="a test"');
  return stdout.trimEnd().split("\n");
}

/** The oldest Node that package.json admits, and one of each line that is maintained. */
const NODES = ["20.3.0", "22.23.5", "24.22.3"];
const nodes = NODES.map((version) => {
  const found = Bun.spawnSync([join(ROOT, "scripts/node"), version], { stderr: "pipe" });
  if (found.exitCode !== 0) {
    console.log(`skipped: the package under Node ${version}: ${found.stderr.toString().trim()}`);
  }
  return { version, path: found.stdout.toString().trim() };
});

describe("the package", () => {
  test("works under Bun", async () => {
    expect(await run(process.execPath, "run")).toEqual(EXPECTED);
  }, 120_000);

  for (const { version, path } of nodes) {
    test.skipIf(path === "")(`works under Node ${version}`, async () => {
      expect(await succeed([path, "--version"], directory)).toBe(`v${version}\n`);
      expect(await run(path)).toEqual(EXPECTED);
    }, 120_000);
  }

  test("admits the oldest Node that it was tried with", () => {
    const { engines } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    expect(`${engines.node}.0`).toBe(`>=${NODES[0]}`);
  });

  test("works under Deno", async () => {
    expect(await run(DENO, "run", "--no-lock", "--no-prompt", "-A")).toEqual(EXPECTED);
  }, 120_000);

  test("works under Deno with no more permissions than it needs", async () => {
    const needs = ["--allow-env", "--allow-sys=uid", "--allow-net", "--allow-run"];
    const files = [`--allow-read=${host.dir},${directory}`, `--allow-write=${host.dir}`];
    // Not /proc/uptime, so on the clock of last resort.
    const printed = await run(DENO, "run", "--no-lock", "--no-prompt", ...needs, ...files);
    expect(printed).toEqual(EXPECTED);
  }, 120_000);

  test(
    "works under Deno where it may run named programs only, and says which it needs",
    async () => {
      const needs = [
        "run",
        "--no-lock",
        "--no-prompt",
        "--allow-env",
        "--allow-sys=uid",
        "--allow-net",
      ];
      const files = [`--allow-read=${host.dir},${directory}`, `--allow-write=${host.dir}`];
      const named = `--allow-run=/bin/sh,agent,${AGENT}`;
      expect(await run(DENO, ...needs, ...files, named)).toEqual(EXPECTED);
      writeFileSync(
        join(directory, "refused.mjs"),
        `
      import { connect, ZitCli } from "zit-lease-agent/client";
      const agent = await connect({ socket: process.env.SOCKET });
      const zit = new ZitCli({ executable: "touch" });
      await agent.guard("one", {}, (token) => zit.write(token, "one", [${
          JSON.stringify(join(host.dir, "touched"))
        }])).catch((error) => console.log(error.name, error.message));
      await agent.close();
    `,
      );
      const refusals = {
        "--allow-run=touch": "Cannot run a program under a lease without /bin/sh",
        "--allow-run=touch,/bin/sh":
          'Cannot pass the lock on to touch by way of the agent\'s executable "agent"',
      };
      for (const [permission, refusal] of Object.entries(refusals)) {
        const [refused] = await run(DENO, ...needs, ...files, permission, "refused.mjs");
        expect(refused).toStartWith(`MisconfiguredError ${refusal}`);
      }
      expect(existsSync(join(host.dir, "touched"))).toBe(false);
    },
    120_000,
  );

  test("brings no other package, no native code and no way to its inside", async () => {
    expect(readdirSync(join(directory, "node_modules")).filter((name) => !name.startsWith(".")))
      .toEqual(["zit-lease-agent"]);
    const root = join(directory, "node_modules/zit-lease-agent");
    const files = readdirSync(root, { recursive: true, encoding: "utf8" });
    expect(files.filter((name) => /\.(node|so|wasm|sh)$/.test(name) || /^src/.test(name)))
      .toEqual([]);
    expect(files.filter((name) => /\.m?js$/.test(name)).sort())
      .toEqual(["dist/client.js", "dist/lint.js"]);
    const text = readFileSync(join(root, "dist/client.js"), "utf8");
    const imports = [...text.matchAll(/\bfrom\s*"([^"]+)"|\bimport\("([^"]+)"\)/g)].map((m) =>
      m[1] ?? m[2]
    );
    expect(imports.length).toBeGreaterThan(3);
    expect(imports.filter((name) => !name.startsWith("node:"))).toEqual([]);
    expect(text).not.toMatch(/bun:|\bBun\.|\bDeno\.|dlopen/);
    const exported = Object.keys(await import(join(root, "dist/client.js")));
    expect(exported.filter((name) => /mint|^Token$|grantOf|Grant|openSocket/.test(name))).toEqual(
      [],
    );
  });
});

describe("a user's program, by the types of the package", () => {
  const compilers: [name: string, () => Compiler][] = [
    ["tsc --strict, moduleResolution node16", () => tsc("node16")],
    ["tsc --strict, moduleResolution bundler", () => tsc("bundler")],
    ["deno check", () => denoCheck()],
  ];

  test.each(compilers)("compiles with a token and not without: %s", async (_name, compiler) => {
    writePrograms(directory, "zit-lease-agent/client");
    const verdict = await verdictOf(compiler(), directory);
    const fine = Object.keys({ ...COMPILES, ...COMPILES_AND_IS_REFUSED });
    expect(fine.filter((title) => verdict.has(title))).toEqual([]);
    const bad = Object.entries(DOES_NOT_COMPILE);
    const wrong = bad.filter(([title, [code]]) => !verdict.get(title)?.includes(code));
    expect(wrong.map(([title]) => `${title}: ${verdict.get(title)}`)).toEqual([]);
  }, 180_000);

  test("is linted by the rule that comes along", () => {
    const config = { lint: { plugins: ["./node_modules/zit-lease-agent/dist/lint.js"] } };
    writeFileSync(join(directory, "deno.json"), JSON.stringify(config));
    writeFileSync(join(directory, "cast.ts"), "export const a = {} as Token;\n");
    const { exitCode, stderr } = Bun.spawnSync([DENO, "lint", "cast.ts"], {
      cwd: directory,
      env: { ...process.env, NO_COLOR: "1" },
    });
    expect(stderr.toString()).toContain("error[zit/no-token-cast]");
    expect(exitCode).toBe(1);
    rmSync(join(directory, "deno.json"));
  });
});
