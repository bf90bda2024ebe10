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
  "package.json": "{}",
};

test("check-layers finds nothing in the project itself", () => {
  expect(check()).toEqual({ exitCode: 0, lines: [] });
});

test("check-layers finds nothing where all rules are kept", () => {
  expect(checkFiles(GOOD)).toEqual({ exitCode: 0, lines: [] });
});

/** Each is added to a project that keeps all rules; then there is just this to report. */
const VIOLATIONS: Record<string, { files: Record<string, string>; report: string }> = {
  "lease imports a package": {
    files: { "src/lease/x.ts": 'import { readFileSync } from "node:fs";\n' },
    report: "src/lease/x.ts:1: imports node:fs; src/lease imports no packages",
  },
  "lease imports a port": {
    files: { "src/lease/x.ts": '\nimport type { A } from "../ports/clock.ts";\n' },
    report: "src/lease/x.ts:2: imports src/ports/clock.ts; src/lease may import no other folder",
  },
  "ports import an adapter": {
    files: { "src/ports/x.ts": 'export * from "../disk/files.ts";\n' },
    report: "src/ports/x.ts:1: imports src/disk/files.ts; src/ports may import only src/lease/",
  },
  "sys imports something of ours": {
    files: { "src/sys/x.ts": 'import "../lease/errors.ts";\n' },
    report: "src/sys/x.ts:1: imports src/lease/errors.ts; src/sys may import no other folder",
  },
  "an adapter imports another": {
    files: { "src/nats/x.ts": 'import {\n  d,\n} from "../disk/files.ts";\n' },
    report: "src/nats/x.ts:3: imports src/disk/files.ts; src/nats may import only src/ports/, " +
      "src/lease/, src/sys/",
  },
  "an adapter imports the agent": {
    files: { "src/service/x.ts": 'const x = await import("../agent/guard.ts");\n' },
    report: "src/service/x.ts:1: imports src/agent/guard.ts; src/service may import only " +
      "src/ports/, src/lease/, src/sys/",
  },
  "the agent imports an adapter's type": {
    files: { "src/agent/x.ts": 'let x: import("../disk/files.ts").A;\n' },
    report: "src/agent/x.ts:1: imports src/disk/files.ts; src/agent may import only src/ports/, " +
      "src/lease/",
  },
  "the agent imports sys": {
    files: { "src/agent/x.ts": 'import { d } from "../sys/libc.ts";\n' },
    report: "src/agent/x.ts:1: imports src/sys/libc.ts; src/agent may import only src/ports/, " +
      "src/lease/",
  },
  "the client imports the server": {
    files: {
      "src/socket/server.ts": "",
      "src/client/x.ts": 'export type { S } from "../socket/server.ts";\n',
    },
    report: "src/client/x.ts:1: imports src/socket/server.ts; src/client may import only " +
      "src/socket/protocol, src/socket/lines, src/lease/errors.ts, src/lease/store_code.ts",
  },
  "anything imports the command line": {
    files: { "src/socket/x.ts": "import '../cli/run.ts';\n" },
    report: "src/socket/x.ts:1: imports src/cli/run.ts; src/socket may import only src/ports/, " +
      "src/lease/, src/sys/",
  },
  "the command line imports a test": {
    files: { "src/cli/x.ts": 'import "../../test/x.ts";\n', "test/x.ts": "" },
    report: "src/cli/x.ts:1: imports test/x.ts, which is not in src",
  },
  "an adapter imports the package's data": {
    files: { "src/nats/x.ts": 'import p from "../../package.json";\n' },
    report: "src/nats/x.ts:1: imports package.json, which is not in src",
  },
  "foreign functions elsewhere": {
    files: { "src/sys/x.ts": 'import { ptr } from "bun:ffi";\n' },
    report: "src/sys/x.ts:1: imports bun:ffi, which only src/sys/libc.ts may",
  },
  "foreign functions by require": {
    files: { "src/cli/x.ts": 'const { ptr } = require("bun:ffi");\n' },
    report: "src/cli/x.ts:1: imports bun:ffi, which only src/sys/libc.ts may",
  },
  "a computed import": {
    files: { "src/cli/x.ts": "const name = './y.ts';\nawait import(name);\n" },
    report: "src/cli/x.ts:2: imports a computed name, which nothing can check",
  },
  "an absolute import": {
    files: { "src/cli/x.ts": 'import "/etc/x.ts";\n' },
    report: "src/cli/x.ts:1: imports /etc/x.ts, which is outside the project",
  },
  "an import of nothing": {
    files: { "src/cli/x.ts": 'import "./gone.ts";\n' },
    report: "src/cli/x.ts:1: imports src/cli/gone.ts, which is not there",
  },
  "a cycle": {
    files: {
      "src/disk/x.ts": 'import "./y.ts";\n',
      "src/disk/y.ts": '\nimport "./z.ts";\n',
      "src/disk/z.ts": 'import type { X } from "./x.ts";\n',
    },
    report: "src/disk/z.ts:1: import cycle src/disk/x.ts -> src/disk/y.ts -> src/disk/z.ts -> " +
      "src/disk/x.ts",
  },
  "a file that imports itself": {
    files: { "src/disk/x.ts": 'import "./x.ts";\n' },
    report: "src/disk/x.ts:1: import cycle src/disk/x.ts -> src/disk/x.ts",
  },
  "a long file": {
    files: { "src/cli/x.ts": "let x;\n".repeat(301) },
    report: "src/cli/x.ts:301: has 301 lines, more than 300",
  },
  "a folder without a rule": {
    files: { "src/util/x.ts": "export {};\n" },
    report: "src/util/x.ts:1: no rule for src/util; add one to scripts/check_layers.ts",
  },
};

for (const [name, { files, report }] of Object.entries(VIOLATIONS)) {
  test(`check-layers reports ${name}`, () => {
    expect(checkFiles({ ...GOOD, ...files })).toEqual({ exitCode: 1, lines: [report] });
  });
}

test("check-layers takes a file of just as many lines as are allowed", () => {
  expect(checkFiles({ ...GOOD, "src/cli/x.ts": "let x;\n".repeat(300) }).exitCode).toBe(0);
});
