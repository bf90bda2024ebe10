/** What scripts/install puts where, and takes away again; and that shells and man take it. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createProgram } from "../../src/cli/program.ts";
import { tempDir } from "../support/temp_dir.ts";

const SCRIPTS = join(import.meta.dir, "../../scripts");
const dir = tempDir();

function install(args: readonly string[], destdir = dir.path) {
  const run = Bun.spawnSync([join(SCRIPTS, "install"), ...args], {
    env: { ...process.env, DESTDIR: destdir },
  });
  return { status: run.exitCode, stdout: `${run.stdout}`, stderr: `${run.stderr}` };
}

function filesBelow(path: string): string[] {
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(path.length)).sort();
}

const PLACED = [
  "/etc/profile.d/zit-agent.sh",
  "/usr/local/bin/agent",
  "/usr/local/lib/systemd/system/zit-agent.service",
  "/usr/local/lib/systemd/system/zit-agent.socket",
  "/usr/local/share/bash-completion/completions/agent",
  "/usr/local/share/fish/vendor_completions.d/agent.fish",
  "/usr/local/share/man/man1/agent.1",
  "/usr/local/share/zit-agent/observability/alerts.yml",
  "/usr/local/share/zit-agent/observability/dashboard.json",
  "/usr/local/share/zsh/site-functions/_agent",
];
const SETTINGS = "/etc/zit-agent/agent.env";

let first: ReturnType<typeof install>;
beforeAll(() => {
  first = install([]);
}, 60_000);
afterAll(() => rmSync(dir.path, { recursive: true, force: true }));

describe("scripts/install", () => {
  test("puts everything in place and says so", () => {
    expect(first.status).toBe(0);
    expect(filesBelow(dir.path)).toEqual([...PLACED, SETTINGS].sort());
    for (const path of [...PLACED, SETTINGS]) {
      expect(first.stdout).toContain(`installed  ${path}\n`);
    }
    expect(statSync(join(dir.path, "/usr/local/bin/agent")).mode & 0o777).toBe(0o755);
    const unit = readFileSync(join(dir.path, PLACED[2]!), "utf8");
    expect(unit).toContain("\nExecStart=/usr/local/bin/agent run\n");
  });

  test("keeps what was configured when it is run again, and when it uninstalls", () => {
    writeFileSync(join(dir.path, SETTINGS), "ZIT_AGENT_NODE=mine\n");
    const again = install([]);
    expect(again.stdout).toContain(`kept       ${SETTINGS}\n`);
    const gone = install(["--uninstall"]);
    expect(gone.status).toBe(0);
    for (const path of PLACED) expect(gone.stdout).toContain(`removed    ${path}\n`);
    expect(filesBelow(dir.path)).toEqual([SETTINGS]);
    expect(existsSync(join(dir.path, "/usr/local/share/zit-agent"))).toBe(false);
    expect(readFileSync(join(dir.path, SETTINGS), "utf8")).toBe("ZIT_AGENT_NODE=mine\n");
    expect(install([]).status).toBe(0);
  });

  test.each([[["--perfix", "/x"]], [["--prefix"]], [["--prefix", "relative"]]])(
    "refuses %p",
    (args) => {
      expect(install(args)).toMatchObject({ status: 64, stdout: "" });
    },
  );

  test("the unit has an exposure of at most 2.0, and says of each thing why it is exposed", () => {
    const exposure = Bun.spawnSync([
      "systemd-analyze",
      "security",
      "--offline=true",
      "--no-pager",
      join(dir.path, PLACED[2]!),
    ]);
    const [, level] = /exposure level for zit-agent\.service: ([\d.]+)/.exec(`${exposure.stdout}`)!;
    expect(Number(level)).toBeLessThanOrEqual(2);
    const comments = readFileSync(join(dir.path, PLACED[2]!), "utf8").split("\n")
      .filter((line) => line.startsWith("#")).join("\n");
    const exposed = [...`${exposure.stdout}`.matchAll(/^✗ (\w+)=/gm)].map(([, name]) => name!);
    expect(exposed.length).toBeGreaterThan(5);
    for (const name of exposed) expect(comments).toContain(name);
  });
});

describe("the man page", () => {
  const page = () => join(dir.path, "/usr/local/share/man/man1/agent.1");

  test("names every command and every flag", () => {
    const source = readFileSync(page(), "utf8").replaceAll("\\-", "-");
    for (const command of createProgram({ env: {}, exit: 0 }).commands) {
      expect(source).toContain(`.SS agent ${command.name()}\n`);
      for (const { long } of command.createHelp().visibleOptions(command)) {
        if (long !== "--help") expect(source).toContain(`\\fB${long}`);
      }
    }
  });

  test("is set without a warning, and has a name for apropos", () => {
    const run = Bun.spawnSync(["groff", "-ww", "-K", "utf8", "-Tutf8", "-man", page()]);
    expect(`${run.stderr}`).toBe("");
    expect(`${run.stdout}`).toContain("one writer per store, fleet");
  });
});

describe("completions in the real shells", () => {
  const at = (path: string) => join(dir.path, path);

  function shell(cmd: readonly string[]) {
    const run = Bun.spawnSync([...cmd], {
      env: { PATH: process.env.PATH!, HOME: dir.path, TERM: "xterm" },
    });
    return `${run.stdout}${run.stderr}`;
  }

  test("bash completes commands and flags", () => {
    const script = `source ${at(PLACED[4]!)}
      complete_at() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _agent || true; echo "\${COMPREPLY[*]}"; }
      complete_at agent step; complete_at agent run --lock; complete_at agent guard s --wa
      complete_at agent guard s -- ls --wa`;
    // Behind `--` comes another program's command line.
    expect(shell(["bash", "-euc", script]))
      .toBe("stepdown\n--lock-path\n--wait --wait-lease\n\n");
  });

  test("zsh completes commands and flags", () => {
    // On a pseudo-terminal, because completion is the line editor's; a function tells what it got.
    const fpath = at("/usr/local/share/zsh/site-functions");
    const script = `zmodload zsh/zpty
      zpty z zsh -f -i
      zpty -w z 'fpath=(${fpath} $fpath); autoload -U compinit; compinit -u -D'
      zpty -w z 'agent() { print -r -- "<$*>" }; print RE""ADY'
      zpty -r -m z seen '*READY*'
      zpty -n -w z $'agent stepd\\t\\n'; zpty -r -m z out '*<*>*'; print -r -- "$out"
      zpty -n -w z $'agent run --lock-p\\t\\n'; zpty -r -m z out '*<*>*'; print -r -- "$out"
      zpty -d z`;
    const output = shell(["timeout", "20", "zsh", "-fc", script]);
    expect(output).toContain("<stepdown>");
    expect(output).toContain("<run --lock-path>");
  });

  test("fish completes commands and flags", () => {
    const script = `source ${at(PLACED[5]!)}
      complete -C 'agent stepd'; complete -C 'agent run --lock-p'; complete -C 'agent guard s --wait-'`;
    const output = shell(["fish", "--no-config", "-c", script]);
    expect(output.split("\n").map((line) => line.split("\t")[0])).toEqual(
      ["stepdown", "--lock-path", "--wait-lease", ""],
    );
  });
});
