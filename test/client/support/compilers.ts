/**
 * Compilers, and what they say of programs.
 * @module
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { allPrograms, programOf } from "./programs.ts";

const ROOT = new URL("../../../", import.meta.url).pathname;

/** The Deno and the TypeScript compiler of this project. */
export const DENO = join(ROOT, "node_modules/.bin/deno");
const TSC = join(ROOT, "node_modules/typescript/lib/tsc.js");

/** What a compiler says: its error codes, by the title of the program. */
export type Verdict = ReadonlyMap<string, readonly string[]>;

/** How a compiler is called on files, and how it tells the code and the file of an error. */
export interface Compiler {
  readonly command: readonly string[];
  /** Two groups: file and code, or code and file; the code begins with TS. */
  readonly error: RegExp;
}

/** `deno check`, by a configuration. */
export function denoCheck(...options: string[]): Compiler {
  return {
    command: [DENO, "check", ...options],
    // The file is named behind a few lines of source.
    error: /^(TS\d+) \[ERROR\](?:(?!\n\n)[^])*?at file:\/\/(\S+?):\d+:\d+/gm,
  };
}

/** `tsc --strict`, with no types but the package's and the language's. */
export function tsc(module: "node16" | "bundler"): Compiler {
  const how = module === "node16"
    ? ["--module", "node16", "--moduleResolution", "node16"]
    : ["--module", "esnext", "--moduleResolution", "bundler"];
  const rest = ["--noEmit", "--strict", "--pretty", "false", "--target", "es2022"];
  // Declarations are checked, too: skipLibCheck is off.
  const types = ["--lib", "es2022,dom,esnext.disposable"];
  return {
    command: [process.execPath, TSC, ...how, ...rest, ...types],
    error: /^(\S+?)\(\d+,\d+\): error (TS\d+)/gm,
  };
}

/** A file name for a program of that title. */
function fileOf(title: string): string {
  return `${title.replaceAll(" ", "_")}.mts`;
}

/** Writes every program to the directory, for a module of that name. */
export function writePrograms(directory: string, module: string): void {
  for (const [title, body] of allPrograms()) {
    writeFileSync(join(directory, fileOf(title)), programOf(body, module));
  }
}

/** Has the programs in the directory compiled, all at once: starting takes longer than all of them. */
export async function verdictOf(compiler: Compiler, directory: string): Promise<Verdict> {
  const files = allPrograms().map(([title]) => join(directory, fileOf(title)));
  const child = Bun.spawn([...compiler.command, ...files], {
    cwd: directory,
    env: { ...process.env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    stdout: "pipe",
    stderr: "pipe",
  });
  const texts = await Promise.all(
    [child.stdout, child.stderr].map((out) => new Response(out).text()),
  );
  const text = texts.join("");
  const titles = new Map(allPrograms().map(([title]) => [fileOf(title), title]));
  const verdict = new Map<string, string[]>();
  for (const [, ...groups] of text.matchAll(compiler.error)) {
    const [code, file] = groups[0]!.startsWith("TS") ? groups : groups.toReversed();
    const title = titles.get(decodeURIComponent(file!).split("/").at(-1)!);
    // An error that is in no program is in the declarations: everybody's.
    if (title === undefined) throw new Error(`${compiler.command.join(" ")} says: ${text}`);
    verdict.set(title, [...verdict.get(title) ?? [], code!]);
  }
  if (verdict.size === 0) throw new Error(`${compiler.command.join(" ")} said: ${text}`);
  return verdict;
}
