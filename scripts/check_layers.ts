/**
 * Checks that the source keeps to its layers: which folder may import what, foreign functions in
 * one module only, no cycles, short files. Prints each violation as `file:line: what`, and exits 1
 * if there is one.
 *
 * Usage: check-layers [DIRECTORY]   (default: the project)
 * @module
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

/** More than a person takes in at once. */
const MAX_LINES = 300;

/** The one module that may call foreign functions. */
const FOREIGN = "src/sys/libc.ts";

/** What a folder may import besides itself. */
interface Rule {
  /** Prefixes of project paths; "" allows all but the tests. */
  readonly project: readonly string[];
  /** Whether it may import the runtime's modules and packages. */
  readonly packages: boolean;
}

const ADAPTER: Rule = { project: ["src/ports/", "src/lease/", "src/sys/"], packages: true };

const RULES: Readonly<Record<string, Rule>> = {
  "src/lease": { project: [], packages: false },
  "src/ports": { project: ["src/lease/"], packages: false },
  "src/sys": { project: [], packages: true },
  "src/nats": ADAPTER,
  "src/disk": ADAPTER,
  "src/socket": ADAPTER,
  "src/service": ADAPTER,
  "src/standalone": ADAPTER,
  "src/agent": { project: ["src/ports/", "src/lease/"], packages: true },
  "src/client": {
    // What the protocol's messages are and how lines are cut, not how a server answers them.
    project: [
      "src/socket/protocol",
      "src/socket/lines",
      "src/lease/errors.ts",
      "src/lease/reason.ts",
      "src/lease/store_code.ts",
    ],
    packages: true,
  },
  // Puts the agent together; only the command line starts it.
  "src/daemon": { project: [""], packages: true },
  "src/version.ts": { project: [""], packages: true },
  "src/cli": { project: [""], packages: true },
  "src/main.ts": { project: [""], packages: true },
};

interface Import {
  readonly line: number;
  readonly specifier: string;
}

/** Statements, which the formatter puts at the beginning of a line, over several lines or not. */
const STATEMENT =
  /^[ \t]*(?:import\s*(?:type\s+)?(?:[\w$*{}\s,]+?\s*from\s*)?|export\s+(?:type\s+)?[*{][\w$*{}\s,]*?from\s*)(["'])(.+?)\1/gm;

/** Imports within code and types, and what else loads a module. */
const CALL = /\b(?:import|require)\s*\(\s*(["'`])(.+?)\1/g;

/** A module loaded by a name that only the running program knows. */
const COMPUTED = /(?<![\w.$#])(?:import|require)\s*\(\s*(?!["'`]|\s)/g;

/** Comments that begin a line, blanked out but for their line ends. */
function withoutComments(text: string): string {
  return text
    .replace(/^[ \t]*\/\*[\s\S]*?\*\//gm, (comment) => comment.replace(/[^\n]/g, " "))
    .replace(/^[ \t]*\/\/.*$/gm, "");
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split("\n").length;
}

function importsOf(text: string): Import[] {
  return [STATEMENT, CALL].flatMap((pattern) =>
    [...text.matchAll(pattern)].map((match) => ({
      // The name is at the end, where a statement over several lines is wrong.
      line: lineAt(text, match.index + match[0].length),
      specifier: match[2]!,
    }))
  );
}

/** The source files below `directory`, sorted. */
function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.[cm]?[jt]sx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name)).sort();
}

/** The folder (or file directly in src) whose rule a project path is under. */
function layerOf(path: string): string {
  return path.split("/").slice(0, 2).join("/");
}

/** Checks the project at `root`; returns the violations. */
function check(root: string): string[] {
  const violations: string[] = [];
  const graph = new Map<string, { target: string; line: number }[]>();
  for (const file of filesBelow(join(root, "src"))) {
    const path = relative(root, file);
    const report = (line: number, what: string) => violations.push(`${path}:${line}: ${what}`);
    const source = readFileSync(file, "utf8");
    const text = withoutComments(source);
    const lines = source.trimEnd().split("\n").length;
    if (lines > MAX_LINES) report(MAX_LINES + 1, `has ${lines} lines, more than ${MAX_LINES}`);
    const rule = RULES[layerOf(path)];
    if (!rule) {
      report(1, `no rule for ${layerOf(path)}; add one to scripts/check_layers.ts`);
      continue;
    }
    for (const match of text.matchAll(COMPUTED)) {
      report(lineAt(text, match.index), "imports a computed name, which nothing can check");
    }
    graph.set(path, []);
    for (const { line, specifier } of importsOf(text)) {
      if (!specifier.startsWith(".")) {
        const wrong = wrongPackage(path, rule, specifier);
        if (wrong) report(line, wrong);
        continue;
      }
      const target = relative(root, resolve(dirname(file), specifier));
      const wrong = wrongTarget(path, rule, target);
      if (wrong) report(line, wrong);
      else if (!existsSync(join(root, target))) {
        report(line, `imports ${target}, which is not there`);
      } else graph.get(path)!.push({ target, line });
    }
  }
  return [...violations, ...cycles(graph)];
}

function wrongPackage(path: string, rule: Rule, specifier: string): string | null {
  if (specifier.startsWith("/") || /^(file|data|https?):/.test(specifier)) {
    return `imports ${specifier}, which is outside the project`;
  }
  if (specifier === "bun:ffi") {
    return path === FOREIGN ? null : `imports bun:ffi, which only ${FOREIGN} may`;
  }
  return rule.packages ? null : `imports ${specifier}; ${layerOf(path)} imports no packages`;
}

function wrongTarget(path: string, rule: Rule, target: string): string | null {
  // The version of the program is written down there, and nowhere else.
  if (target === "package.json" && rule.project.includes("")) return null;
  if (!target.startsWith("src/")) return `imports ${target}, which is not in src`;
  const layer = layerOf(path);
  if (layerOf(target) === layer) return null;
  if (rule.project.some((prefix) => target.startsWith(prefix))) return null;
  const allowed = rule.project.length > 0 ? `only ${rule.project.join(", ")}` : "no other folder";
  return `imports ${target}; ${layer} may import ${allowed}`;
}

/** Each import that leads back to where it is, found depth first. */
function cycles(graph: ReadonlyMap<string, readonly { target: string; line: number }[]>): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const trail: string[] = [];
  const visit = (path: string) => {
    trail.push(path);
    for (const { target, line } of graph.get(path) ?? []) {
      const at = trail.indexOf(target);
      if (at >= 0) {
        found.push(`${path}:${line}: import cycle ${[...trail.slice(at), target].join(" -> ")}`);
      } else if (!done.has(target)) visit(target);
    }
    trail.pop();
    done.add(path);
  };
  for (const path of graph.keys()) if (!done.has(path)) visit(path);
  return found;
}

const violations = check(resolve(process.argv[2] ?? join(import.meta.dirname, "..")));
for (const violation of violations) console.log(violation);
process.exit(violations.length > 0 ? 1 : 0);
