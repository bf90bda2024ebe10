import { beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { tempDir } from "../support/temp_dir.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const DENO = join(ROOT, "node_modules/.bin/deno");

/** What every program begins with: a guarded write, as it should be. */
const PRELUDE = `
import { connect, type Genuine, requireToken, type Token, unguarded, ZitCli } from ${
  JSON.stringify(join(ROOT, "src/client/mod.ts"))
};
export { type Token, unguarded };
export const zit = new ZitCli();
export const agent = await connect();
/** A writing call of the program's own. */
export function push<T extends Token>(token: Genuine<T>, store: string): void {
  requireToken(token, store);
}
`;

/** Programs that are fine, so that the others fail for their own reason. */
const COMPILES: Record<string, string> = {
  guarded: `await agent.guard("s", {}, async (token) => {
    push(token, "s");
    await token.verify();
    return (await zit.write(token, "s", ["commit"])).status;
  });`,
  helper: `function helper(token: Token) { push(token, "s"); }
  await agent.guard("s", { waitMs: 5 }, helper);`,
  unguarded: `push(unguarded("a repair by hand"), "s");`,
  read: `await zit.read("s", "timeline", ["-n", "5"]);`,
  "own reads": `await new ZitCli({ reads: ["cat", "peek"] }).read("s", "peek");`,
};

/** Programs that must not compile, each with what the compiler says first. */
const DOES_NOT_COMPILE: Record<string, [code: string, body: string]> = {
  "no token": ["TS2554", `push("s");`],
  "no token for zit": ["TS2554", `await zit.write("s", ["commit"]);`],
  "undefined": ["TS2345", `push(undefined, "s");`],
  "null": ["TS2345", `push(null, "s");`],
  "a string": ["TS2345", `push("token", "s");`],
  "what JSON gives": ["TS2345", `push(JSON.parse("{}"), "s");`],
  "any": ["TS2345", `const forged: any = {}; push(forged, "s");`],
  "any for zit": ["TS2345", `const forged: any = {}; await zit.write(forged, "s", ["commit"]);`],
  "unknown": ["TS2345", `const forged: unknown = {}; push(forged, "s");`],
  "never": [
    "TS2345",
    `function f(x: string | number) { if (typeof x !== "string" && typeof x !== "number") {
    const y: string = x; push(y, "s"); } } f(1);`,
  ],
  "an empty object": ["TS2345", `push({}, "s");`],
  "an object with its members": [
    "TS2345",
    `const signal = new AbortController().signal;
  push({ store: "s", epoch: 1, node: "n", lockPath: "/l", unguarded: null, signal,
    remainingMs: 1, live: true, verify: () => Promise.resolve() }, "s");`,
  ],
  "a spread copy": ["TS2345", `await agent.guard("s", {}, (token) => push({ ...token }, "s"));`],
  "a created copy": [
    "TS2345",
    `await agent.guard("s", {}, (token) => push(Object.create(token), "s"));`,
  ],
  "a serialised copy": [
    "TS2345",
    `await agent.guard("s", {}, (token) =>
    push(JSON.parse(JSON.stringify(token)), "s"));`,
  ],
  "construction": ["TS2673", `push(new Token(), "s");`],
  "construction by its class": [
    "TS2673",
    `await agent.guard("s", {}, (token) => {
    const Class = token.constructor as typeof Token; push(new Class(), "s"); });`,
  ],
  "a subclass": ["TS2675", `class Fake extends Token {} push(new Fake(), "s");`],
  "an implementation": [
    "TS2345",
    `class Fake implements Token { store = "s"; epoch = 1; node = "n";
    lockPath = "/l"; unguarded = null; signal = new AbortController().signal; remainingMs = 1;
    live = true; verify() { return Promise.resolve(); } } push(new Fake(), "s");`,
  ],
  "a cast string": ["TS2352", `push("token" as Token, "s");`],
  "a cast to any": ["TS2345", `push({} as any, "s");`],
  "the name of the maker": [
    "TS2305",
    `import { mintToken } from ${
      JSON.stringify(join(ROOT, "src/client/mod.ts"))
    }; mintToken({} as never);`,
  ],
  "a guard without a write": ["TS2554", `await agent.guard("s", {});`],
  "unguarded without a reason": ["TS2554", `push(unguarded(), "s");`],
  "a write as a read": ["TS2345", `await zit.read("s", "commit", ["-m", "x"]);`],
};

/**
 * What no type can keep from compiling, because the language says that these casts and copies have
 * the type of a token: refused when it runs, see guard.test.ts, and by the linter.
 */
const COMPILES_AND_IS_REFUSED: Record<string, string> = {
  "an empty object, cast": `push({} as Token, "s");`,
  "an object, cast": `push({ store: "s", epoch: 1 } as Token, "s");`,
  "another class, cast": `class Fake { store = "s"; } push(new Fake() as Token, "s");`,
  "a cast by way of unknown": `push("x" as unknown as Token, "s");`,
  "a structured clone": `await agent.guard("s", {}, (token) => push(structuredClone(token), "s"));`,
};

/** Which of the programs have errors, and which. */
let errors: Map<string, string[]>;

function fileOf(title: string): string {
  return `${title.replaceAll(" ", "_")}.ts`;
}

beforeAll(() => {
  using directory = tempDir();
  const bad = Object.entries(DOES_NOT_COMPILE).map(([title, [, body]]) => [title, body]);
  const programs = { ...COMPILES, ...Object.fromEntries(bad), ...COMPILES_AND_IS_REFUSED };
  const files = Object.entries(programs).map(([title, body]) => {
    const path = join(directory.path, fileOf(title));
    writeFileSync(path, `${PRELUDE}\n${body}\n`);
    return path;
  });
  // All at once: starting the compiler takes longer than all of them.
  const checked = Bun.spawnSync([DENO, "check", "--config", join(ROOT, "deno.json"), ...files], {
    cwd: ROOT,
    env: { ...process.env, NO_COLOR: "1" },
  });
  const text = checked.stderr.toString();
  errors = new Map();
  for (const [, code, rest] of text.matchAll(/^(TS\d+) \[ERROR\]([^]*?)\n\n/gm)) {
    const at = /at file:\/\/(\S+?):\d+:\d+/.exec(rest)?.[1] ?? "nowhere";
    const file = decodeURIComponent(at).split("/").at(-1)!;
    errors.set(file, [...errors.get(file) ?? [], code]);
  }
  if (errors.size === 0) throw new Error(`the compiler said: ${text}`);
}, 60_000);

describe("a program", () => {
  for (const title of Object.keys(COMPILES)) {
    test(`compiles with a token: ${title}`, () => {
      expect(errors.get(fileOf(title)) ?? []).toEqual([]);
    });
  }

  for (const [title, [code]] of Object.entries(DOES_NOT_COMPILE)) {
    test(`does not compile without a token: ${title}`, () => {
      expect(errors.get(fileOf(title)) ?? []).toContain(code);
    });
  }

  for (const title of Object.keys(COMPILES_AND_IS_REFUSED)) {
    test(`compiles, and is refused when it runs: ${title}`, () => {
      expect(errors.get(fileOf(title)) ?? []).toEqual([]);
    });
  }
});

describe("the linter", () => {
  test("finds every cast to a token", () => {
    using directory = tempDir();
    const file = join(directory.path, "casts.ts");
    writeFileSync(
      file,
      `import type { Token } from "./x.ts";
      export const a = {} as Token;
      export const b = "x" as unknown as Token;
      export const c = <Token> <unknown> 1;
      export const d = (token: Token) => token;
      `,
    );
    const plugins = [join(ROOT, "scripts/lint_token_casts.ts")];
    writeFileSync(join(directory.path, "deno.json"), JSON.stringify({ lint: { plugins } }));
    const linted = Bun.spawnSync([DENO, "lint", "--json", file], { cwd: directory.path });
    const { diagnostics } = JSON.parse(linted.stdout.toString());
    const found = diagnostics.filter(({ code }: { code: string }) => code === "zit/no-token-cast");
    expect(found.length).toBe(3);
  });
});

describe("the module", () => {
  test("makes tokens in two places, the guard and unguarded()", () => {
    const directory = join(ROOT, "src");
    const files = readdirSync(directory, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts"));
    const makers = files.filter((name) =>
      /\bmintToken\(/.test(readFileSync(join(directory, name), "utf8"))
    );
    expect(makers.sort()).toEqual(["client/client.ts", "client/token.ts", "client/unguarded.ts"]);
  });

  test("exports neither the maker nor the class", async () => {
    const exported = Object.keys(await import("../../src/client/mod.ts"));
    expect(exported).toContain("requireToken");
    expect(exported.filter((name) => /mint|^Token$|grantOf|Grant/.test(name))).toEqual([]);
  });
});
