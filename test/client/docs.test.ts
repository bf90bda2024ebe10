/** The examples of docs/client.md, as they stand there: compiled, and run against real agents. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AGENT, RealAgent } from "../support/real_agent.ts";
import { NatsServer } from "../support/nats.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/wait.ts";
import { DENO } from "./support/compilers.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const MODULE = join(ROOT, "src/client/mod.ts");
const TEXT = readFileSync(join(ROOT, "docs/client.md"), "utf8");
const BLOCKS = [...TEXT.matchAll(/^```ts\n([^]*?)^```/gm)].map((match) => match[1]!);
const [MAIN, PUBLISH, VIEW, ZIT, PASS_LOCK] = BLOCKS as [string, string, string, string, string];

/** What the examples' readers have of their own. */
const OWN = `
export interface Staged { readonly pack: string; readonly aborted: boolean }
export const pack = "pack";
export function stage(pack: string, { signal }: { signal: AbortSignal }): Promise<Staged> {
  return Promise.resolve({ pack, aborted: signal.aborted });
}
export function sendTo(address: string | null | undefined, pack: string): Promise<void> {
  console.log("sent to", address, pack);
  return Promise.resolve();
}
export function runJobs(store: string): void {
  console.log("jobs of", store);
  process.exit();
}
`;

/** A program of blocks, in that order, with what a reader has; its imports are at the top. */
function programOf(...blocks: string[]): string {
  const imports = /^import .*;\n/gm;
  const all = blocks.join("\n");
  const names = [...all.matchAll(/^import \{ (.*) \} from "zit-lease-agent\/client";$/gm)]
    .flatMap(([, list]) => list!.split(", "));
  const from = `import { ${[...new Set(names)].join(", ")} } from ${JSON.stringify(MODULE)};`;
  return `${from}\nimport process from "node:process";\n${OWN}\n${all.replaceAll(imports, "")}`;
}

let nats: NatsServer;
let alpha: RealAgent;
let beta: RealAgent;
let directory: ReturnType<typeof tempDir>;

/** The programs by name. */
const PROGRAMS: Record<string, string> = {};

beforeAll(async () => {
  directory = tempDir();
  nats = await NatsServer.start();
  const start = (node: string) =>
    RealAgent.start({ node, nats: nats.url, flags: ["--address", `http://${node}`] });
  [alpha, beta] = await Promise.all([start("alpha"), start("beta")]);
  for (const host of [alpha, beta]) host.makeStore("project");
  const connected = `import { connect } from "zit-lease-agent/client";\n`;
  const agent = `${connected}const agent = await connect();\n`;
  // Where the reader's stores are, and where they are here.
  const zit = ZIT.replace("/var/lib/zit/", `${directory.path}/`);
  const located = PASS_LOCK.replace("/opt/zit-agent/bin/agent", AGENT);
  const push = `const zit = new ZitCli({ directory: () => "${directory.path}/project" });
    await agent.guard("project", {}, (token) => zit.write(token, "project", ["push"]));`;
  const imported = `import { connect, ZitCli } from "zit-lease-agent/client";\n`;
  const shown = `console.log("published", staged.pack, staged.aborted);\n}`;
  Object.assign(PROGRAMS, {
    main: programOf(PUBLISH.replace(/ {2}\/\/ …\n}/, shown), MAIN),
    view: programOf(`${agent}const stores = ["project", "wiki"];\n`, VIEW),
    zit: programOf(agent, zit, "await agent.close();"),
    located: programOf(imported, located, push, "await agent.close();"),
  });
  for (const [name, text] of Object.entries(PROGRAMS)) {
    writeFileSync(join(directory.path, `${name}.ts`), text);
  }
}, 60_000);

afterAll(async () => {
  await Promise.all([alpha, beta].map((host) => host[Symbol.asyncDispose]()));
  await nats.stop();
  directory[Symbol.dispose]();
});

/** What a program prints that asks `host`. */
async function run(name: string, host: RealAgent): Promise<string> {
  const agent = name === "located" ? "" : `:${join(AGENT, "..")}`;
  const path = `${directory.path}${agent}:${process.env.PATH}`;
  const child = Bun.spawn([process.execPath, join(directory.path, `${name}.ts`)], {
    env: { ...process.env, PATH: path, ZIT_AGENT_SOCKET: host.socket },
    stdout: "pipe",
    stderr: "inherit",
  });
  const printed = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  return printed;
}

describe("the examples of docs/client.md", () => {
  test("are all here, and compile", () => {
    expect(BLOCKS.length).toBe(5);
    const config = ["--config", join(ROOT, "deno.json")];
    const files = Object.keys(PROGRAMS).map((name) => join(directory.path, `${name}.ts`));
    const checked = Bun.spawnSync([DENO, "check", "--quiet", ...config, ...files], { cwd: ROOT });
    expect(checked.stderr.toString()).toBe("");
    expect(checked.exitCode).toBe(0);
  }, 60_000);

  test("guard a write where the store is held, and send it there from elsewhere", async () => {
    expect(await run("main", alpha)).toBe("published pack false\n");
    expect(await run("main", beta)).toBe("sent to http://alpha pack\n");
  });

  test("keep a scheduler's view", async () => {
    const client = await alpha.client();
    await until(
      "project is held",
      async () => (await client.call("held", { store: "project" })).held,
    );
    expect(await run("view", alpha)).toMatch(/^jobs of (project|wiki)\n$/);
  });

  test("run zit, with the lock passed on, too", async () => {
    const notes = join(directory.path, "notes");
    const zit = join(directory.path, "zit");
    writeFileSync(zit, `#!/bin/sh\necho "$PWD $* \${ZIT_LEASE_LOCK_FD:+locked}" >>${notes}\n`);
    chmodSync(zit, 0o755);
    mkdirSync(join(directory.path, "project"));
    await run("zit", alpha);
    await run("located", alpha);
    const where = join(directory.path, "project");
    expect(readFileSync(notes, "utf8").split("\n")).toEqual([
      `${where} timeline -n 5 `,
      `${where} commit -m … locked`,
      `${where} push locked`,
      "",
    ]);
  });
});
