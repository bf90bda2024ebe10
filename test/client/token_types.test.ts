import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RealAgent } from "../support/real_agent.ts";
import { tempDir } from "../support/temp_dir.ts";
import { DENO, denoCheck, type Verdict, verdictOf, writePrograms } from "./support/compilers.ts";
import {
  COMPILES,
  COMPILES_AND_IS_REFUSED,
  DOES_NOT_COMPILE,
  programOf,
} from "./support/programs.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

let verdict: Verdict;

beforeAll(async () => {
  using directory = tempDir();
  writePrograms(directory.path, join(ROOT, "src/client/mod.ts"));
  verdict = await verdictOf(denoCheck("--config", join(ROOT, "deno.json")), directory.path);
}, 60_000);

describe("a program", () => {
  for (const title of Object.keys(COMPILES)) {
    test(`compiles with a token: ${title}`, () => {
      expect(verdict.get(title) ?? []).toEqual([]);
    });
  }

  for (const [title, [code]] of Object.entries(DOES_NOT_COMPILE)) {
    test(`does not compile without a token: ${title}`, () => {
      expect(verdict.get(title) ?? []).toContain(code);
    });
  }
});

describe("a program that no type can refuse", () => {
  let host: RealAgent;
  beforeAll(async () => {
    host = await RealAgent.start({ node: "types" });
    host.makeStore("s");
  });
  afterAll(() => host[Symbol.asyncDispose]());

  test.each(Object.entries(COMPILES_AND_IS_REFUSED))(
    "compiles, and its write is refused when it runs: %s",
    async (title, body) => {
      expect(verdict.get(title) ?? []).toEqual([]);
      expect(await run(body)).toBe("NoTokenError\n");
    },
  );

  test("is refused for what it is: the same runs with the token itself", async () => {
    expect(await run(`await agent.guard("s", {}, (token) => push(token, "s"));`)).toBe("done\n");
  });

  async function run(body: string): Promise<string> {
    using directory = tempDir();
    const file = join(directory.path, "program.mts");
    const guarded =
      `try { ${body} console.log("done"); } catch (e) { console.log((e as Error).name); }
      process.exit();`;
    writeFileSync(file, programOf(guarded, join(ROOT, "src/client/mod.ts")));
    const child = Bun.spawn([process.execPath, file], {
      env: { ...process.env, ZIT_AGENT_SOCKET: host.socket },
      stdout: "pipe",
      stderr: "inherit",
    });
    return await new Response(child.stdout).text();
  }
});

describe("the linter", () => {
  /** How often it finds something in a file of that text. */
  function findings(text: string): number {
    using directory = tempDir();
    const file = join(directory.path, "casts.ts");
    writeFileSync(file, text);
    const plugins = [join(ROOT, "scripts/lint_token_casts.ts")];
    writeFileSync(join(directory.path, "deno.json"), JSON.stringify({ lint: { plugins } }));
    const linted = Bun.spawnSync([DENO, "lint", "--json", file], { cwd: directory.path });
    const { diagnostics } = JSON.parse(linted.stdout.toString());
    return diagnostics.filter(({ code }: { code: string }) => code === "zit/no-token-cast").length;
  }

  test.each([
    "{} as Token",
    `"x" as unknown as Token`,
    "<Token> <unknown> 1",
    "{} as client.Token",
    "[{} as any as Token][0]",
  ])("finds a cast: %s", (cast) => {
    expect(findings(`export const a = ${cast};`)).toBe(1);
  });

  test.each(["{} as any", `JSON.parse("{}")`, "Object.create(token)", "structuredClone(token)"])(
    "finds what is given to a variable for a token: %s",
    (init) => {
      expect(findings(`export const a: Token = ${init};`)).toBe(1);
    },
  );

  test.each([
    "declare const forged: Token;",
    "export class Holder { declare token: Token; }",
    "to<Token>(text);",
    "to<Token[]>([{}]);",
    "f(1, null!);",
    "export const a = new Holder(undefined!);",
  ])("finds what is said to be a token: %s", (text) => {
    expect(findings(text)).toBe(1);
  });

  test("finds what it can of the programs that no type can refuse", () => {
    const missed = Object.entries(COMPILES_AND_IS_REFUSED)
      .filter(([, body]) => findings(programOf(body, "x")) === 0).map(([title]) => title);
    // What docs/client.md says that it does not see: refused at run time alone.
    expect(missed.sort()).toEqual([
      "a cast to never",
      "a function of any kind",
      "a property, said to be given something",
      "any by way of a list's method",
      "any by way of a parameter",
      "any by way of an assigned property",
      "any by way of apply",
      "any by way of what is returned",
    ]);
  });

  test.each(Object.entries(COMPILES))("lets pass what is right: %s", (_title, body) => {
    expect(findings(programOf(body, "x"))).toBe(0);
  });

  test.each([
    `export const a: Token = unguarded("why"), b: Token = a;`,
    `export function f({ token }: { token: Token }, held = token) { const mine: Token = held; }`,
    `let kept: Token | undefined; export const same: Token = kept!;`,
    `let current: Token | null = null; agent.guard("s", {}, (token) => { current = token; });`,
    `const all: Token[] = [], byName = new Map<string, Token>(); all.push(...byName.values());`,
    `const push: (token: Token) => void = pushers.get("s"); push as (token: Token) => void;`,
    `export const found = Promise.withResolvers<Token>(), held = all.map<Token>((each) => each.token);`,
    `agent.guard("s", {}, (token) => push<Token>(token, "s")); push<Token>(unguarded("why"), "s");`,
    `let late!: string; declare const version: string; export const a = items[0]!, b = null;`,
    `interface Token { text: string } const token = { text: "x" } satisfies Token;`,
    `agent.guard("s", {}, (token) => push(token, Object.assign({}, options), { ...more, token }, pool.create(token)));`,
    `const numbers: number[] = JSON.parse("[]"); const n = numbers as unknown as string[];`,
  ])("lets pass what can be nothing but right: %s", (text) => {
    expect(findings(text)).toBe(0);
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
