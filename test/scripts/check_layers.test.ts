import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { tempDir } from "../support/temp_dir.ts";

const SCRIPT = join(import.meta.dirname, "../../scripts/check-layers");

/** Runs the check, on the project itself unless another is given. */
function check(...args: string[]): { exitCode: number; lines: string[] } {
  const { exitCode, stdout, stderr } = Bun.spawnSync([SCRIPT, ...args]);
  expect(stderr.toString()).toBe("");
  return { exitCode, lines: stdout.toString().split("\n").filter((line) => line !== "") };
}

/** Runs the check on a project of these files. */
function checkFiles(files: Record<string, string>): { exitCode: number; lines: string[] } {
  using dir = tempDir();
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(dir.path, path)), { recursive: true });
    writeFileSync(join(dir.path, path), text);
  }
  return check(dir.path);
}

/** A project that keeps all rules. */
const GOOD = {
  "src/lease/errors.ts": "export const a = 1;\n",
  "src/lease/store_code.ts": 'import { a } from "./errors.ts";\nexport const b = a;\n',
  "src/ports/clock.ts": 'import type { a } from "../lease/errors.ts";\nexport type A = typeof a;\n',
  "src/sys/libc.ts": 'import { dlopen } from "bun:ffi";\nexport const d = dlopen;\n',
  "src/disk/files.ts":
    'import { d } from "../sys/libc.ts";\nimport fs from "node:fs";\nexport type { A } from "../ports/clock.ts";\nexport { d, fs };\n',
  "src/socket/protocol.ts": 'export const p = "import x from \\"../nats/y.ts\\"";\n',
  "src/agent/guard.ts": 'import {\n  b,\n} from "../lease/store_code.ts";\nexport { b };\n',
  "src/client/connect.ts":
    'import { p } from "../socket/protocol.ts";\nimport "../lease/errors.ts";\nexport { p };\n',
  "src/cli/run.ts":
    'import { b } from "../agent/guard.ts";\nexport const load = () => import("../disk/files.ts");\nexport { b };\n',
  "src/main.ts":
    '// import "../test/x.ts";\nimport "./cli/run.ts";\nimport p from "../package.json";\nexport { p };\n',
  // Just as long as a file may be.
  "src/cli/long.ts": "let x;\n".repeat(300),
  "src/socket/server.ts": "",
  // Two thirds of a cycle.
  "src/disk/x.ts": 'import "./y.ts";\n',
  "src/disk/y.ts": '\nimport "./z.ts";\n',
  "src/disk/z.ts": "",
  "package.json": "{}",
};

test("check-layers finds nothing in the project itself", () => {
  expect(check()).toEqual({ exitCode: 0, lines: [] });
});

test("check-layers finds nothing where all rules are kept", () => {
  expect(checkFiles(GOOD)).toEqual({ exitCode: 0, lines: [] });
});

/** An adapter's, in words. */
const ADAPTER = "may import only src/ports/, src/lease/, src/sys/";

/**
 * What is wrong, the file that does it, its text, and what there is to report, behind the file's name: each
 * is added to a project that keeps all rules.
 */
const VIOLATIONS: readonly (readonly [string, string, string, string])[] = [
  [
    "lease imports a package",
    "src/lease/x.ts",
    'import { readFileSync } from "node:fs";\n',
    "1: imports node:fs; src/lease imports no packages",
  ],
  [
    "lease imports a port",
    "src/lease/x.ts",
    '\nimport type { A } from "../ports/clock.ts";\n',
    "2: imports src/ports/clock.ts; src/lease may import no other folder",
  ],
  [
    "ports import an adapter",
    "src/ports/x.ts",
    'export * from "../disk/files.ts";\n',
    "1: imports src/disk/files.ts; src/ports may import only src/lease/",
  ],
  [
    "sys imports something of ours",
    "src/sys/x.ts",
    'import "../lease/errors.ts";\n',
    "1: imports src/lease/errors.ts; src/sys may import no other folder",
  ],
  [
    "an adapter imports another",
    "src/nats/x.ts",
    'import {\n  d,\n} from "../disk/files.ts";\n',
    `3: imports src/disk/files.ts; src/nats ${ADAPTER}`,
  ],
  [
    "an adapter imports the agent",
    "src/service/x.ts",
    'const x = await import("../agent/guard.ts");\n',
    `1: imports src/agent/guard.ts; src/service ${ADAPTER}`,
  ],
  [
    "the agent imports an adapter's type",
    "src/agent/x.ts",
    'let x: import("../disk/files.ts").A;\n',
    "1: imports src/disk/files.ts; src/agent may import only src/ports/, src/lease/",
  ],
  [
    "the agent imports sys",
    "src/agent/x.ts",
    'import { d } from "../sys/libc.ts";\n',
    "1: imports src/sys/libc.ts; src/agent may import only src/ports/, src/lease/",
  ],
  [
    "the client imports the server",
    "src/client/x.ts",
    'export type { S } from "../socket/server.ts";\n',
    "1: imports src/socket/server.ts; src/client may import only src/socket/protocol, " +
    "src/socket/lines, src/lease/errors.ts, src/lease/reason.ts, src/lease/store_code.ts",
  ],
  [
    "anything imports the command line",
    "src/socket/x.ts",
    "import '../cli/run.ts';\n",
    `1: imports src/cli/run.ts; src/socket ${ADAPTER}`,
  ],
  [
    "the command line imports a test",
    "src/cli/x.ts",
    'import "../../test/x.ts";\n',
    "1: imports test/x.ts, which is not in src",
  ],
  [
    "an adapter imports the package's data",
    "src/nats/x.ts",
    'import p from "../../package.json";\n',
    "1: imports package.json, which is not in src",
  ],
  [
    "foreign functions elsewhere",
    "src/sys/x.ts",
    'import { ptr } from "bun:ffi";\n',
    "1: imports bun:ffi, which only src/sys/libc.ts may",
  ],
  [
    "foreign functions by require",
    "src/cli/x.ts",
    'const { ptr } = require("bun:ffi");\n',
    "1: imports bun:ffi, which only src/sys/libc.ts may",
  ],
  [
    "a computed import",
    "src/cli/x.ts",
    "const name = './y.ts';\nawait import(name);\n",
    "2: imports a computed name, which nothing can check",
  ],
  [
    "an absolute import",
    "src/cli/x.ts",
    'import "/etc/x.ts";\n',
    "1: imports /etc/x.ts, which is outside the project",
  ],
  [
    "an import of nothing",
    "src/cli/x.ts",
    'import "./gone.ts";\n',
    "1: imports src/cli/gone.ts, which is not there",
  ],
  [
    "a cycle",
    "src/disk/z.ts",
    '\nimport type { X } from "./x.ts";\n',
    "2: import cycle src/disk/x.ts -> src/disk/y.ts -> src/disk/z.ts -> src/disk/x.ts",
  ],
  [
    "a file that imports itself",
    "src/disk/a.ts",
    'import "./a.ts";\n',
    "1: import cycle src/disk/a.ts -> src/disk/a.ts",
  ],
  [
    "a long file",
    "src/cli/x.ts",
    "let x;\n".repeat(301),
    "301: has 301 lines, more than 300",
  ],
  [
    "a folder without a rule",
    "src/util/x.ts",
    "export {};\n",
    "1: no rule for src/util; add one to scripts/check_layers.ts",
  ],
];

test.each(VIOLATIONS)("check-layers reports %s", (_, path, text, report) => {
  expect(checkFiles({ ...GOOD, [path]: text })).toEqual({
    exitCode: 1,
    lines: [`${path}:${report}`],
  });
});
