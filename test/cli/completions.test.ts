/** What the scripts of `agent completions` offer for values, in the real shells. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { LOG_FORMATS, LOG_LEVELS } from "../../src/cli/run_flags.ts";
import { runAgent } from "../support/agent_under_test.ts";
import { tempDir } from "../support/temp_dir.ts";

/** A file that is offered where file names are. */
const FILE = "a-file";
const STATES = ["held", "self", "other", "free"];
const SHELLS = ["bash", "zsh", "fish"];

/** What stands before the cursor, and what is offered there. */
const CASES: readonly (readonly [words: readonly string[], offered: readonly string[]])[] = [
  [["leases", "--state", ""], STATES],
  [["leases", "--state", "s"], ["self"]],
  [["run", "--log-format", ""], LOG_FORMATS],
  [["run", "--node", "n", "--log-level", ""], LOG_LEVELS],
  [["run", "--log-level", "w"], ["warn"]],
  [["completions", ""], SHELLS],
  [["completions", "z"], ["zsh"]],
  [["help", "stepd"], ["stepdown"]],
  // Files where a value is a path, and nowhere else.
  [["run", "--creds", "a-"], [FILE]],
  [["status", "--socket", "a-"], [FILE]],
  [["run", "--state-dir", "a-"], [FILE]],
  [["guard", "s", "--wait", "a-"], []],
  [["guard", "s", "--unguarded", "a-"], []],
  [["leases", "--state", "a-"], []],
];

const dir = tempDir();

beforeAll(async () => {
  writeFileSync(join(dir.path, FILE), "");
  // Where no name of theirs is taken for a word that is offered.
  mkdirSync(join(dir.path, "scripts"));
  for (const [shell, name] of [["bash", "bash"], ["zsh", "_agent"], ["fish", "fish"]]) {
    const { exit, stdout } = await runAgent(["completions", shell!]);
    expect(exit).toBe(0);
    writeFileSync(join(dir.path, "scripts", name!), stdout);
  }
});
afterAll(() => dir[Symbol.dispose]());

function shell(cmd: readonly string[]): string {
  const { stdout, stderr } = Bun.spawnSync([...cmd], {
    cwd: dir.path,
    env: { PATH: process.env.PATH!, HOME: dir.path, TERM: "xterm" },
  });
  return `${stdout}${stderr}`;
}

const offered = (text: string) => text.trim().split(/\s+/).filter((each) => each !== "").sort();

describe("bash", () => {
  function complete(words: readonly string[]): string[] {
    const script = `source scripts/bash
      # Asked as by readline; without a reply and with the default on, files are offered.
      COMP_WORDS=(agent "$@"); COMP_CWORD=$#; COMPREPLY=(); default=yes
      compopt() { [[ $* == "+o default" ]] && default=no; }
      _agent || true
      if ((\${#COMPREPLY[@]} == 0)) && [[ $default == yes ]]; then
        compgen -f -- "\${COMP_WORDS[COMP_CWORD]}" || true
      else
        echo "\${COMPREPLY[@]}"
      fi`;
    return offered(shell(["bash", "-euc", script, "bash", ...words]));
  }

  test.each(CASES)("completes %p to %p", (words, expected) => {
    const found = complete(words);
    // A command's flags stand beside its words.
    expect(found.filter((each) => !each.startsWith("--"))).toEqual([...expected].sort());
  });

  test("completes a value behind `=`, which comes as a word of its own", () => {
    expect(complete(["leases", "--state", "="])).toEqual([...STATES].sort());
    expect(complete(["leases", "--state", "=", "f"])).toEqual(["free"]);
  });
});

describe("fish", () => {
  test.each(CASES)("completes %p to %p", (words, expected) => {
    const script = `source scripts/fish; complete -C "agent $argv"`;
    const found = shell(["fish", "--no-config", "-c", script, words.join(" ")])
      .split("\n").map((line) => line.split("\t")[0]!).join("\n");
    expect(offered(found)).toEqual([...expected].sort());
  });
});

describe("zsh", () => {
  test("completes values and offers files for paths alone", () => {
    // On a pseudo-terminal, because completion is the line editor's; a function tells what it got.
    const lines = [
      ["leases --state s", "leases --state self"],
      ["leases --state=o", "leases --state=other"],
      ["run --log-format t", "run --log-format text"],
      ["run --log-level w", "run --log-level warn"],
      ["completions z", "completions zsh"],
      ["help stepd", "help stepdown"],
      ["run --creds a-", `run --creds ${FILE}`],
      ["guard s --wait a-", "guard s --wait a-"],
      ["leases --state a-", "leases --state a-"],
    ];
    const asked = lines.map(([typed]) =>
      `zpty -n -w z $'agent ${typed}\\t\\n'; zpty -r -m z out '*<*>*'; print -r -- "$out"`
    );
    const script = `zmodload zsh/zpty
      zpty z zsh -f -i
      zpty -w z 'fpath=(${dir.path}/scripts $fpath); autoload -U compinit; compinit -u -D'
      zpty -w z 'agent() { print -r -- "<$*>" }; print RE""ADY'
      zpty -r -m z seen '*READY*'
      ${asked.join("\n")}
      zpty -d z`;
    const output = shell(["timeout", "40", "zsh", "-fc", script]);
    const got = [...output.matchAll(/^<(.*)>/gm)].map(([, line]) => line!.trim());
    expect(got).toEqual(lines.map(([, becomes]) => becomes!));
  });
});

test("agent run --log-format and --log-level are refused in the same words as their twins", async () => {
  for (const [flag, words] of [["log-format", LOG_FORMATS], ["log-level", LOG_LEVELS]] as const) {
    const twin = `ZIT_AGENT_${flag.toUpperCase().replace("-", "_")}`;
    const command = ["run", "--standalone", "x", "--socket", "/x", "--print-config"];
    const why = ` must be ${words.join(" or ")}, not "nope".\n`;
    expect(await runAgent([...command, `--${flag}`, "nope"]))
      .toMatchObject({ exit: 64, stderr: `agent: --${flag}${why}` });
    expect(await runAgent(command, { env: { [twin]: "nope" } }))
      .toMatchObject({ exit: 64, stderr: `agent: ${twin}${why}` });
  }
});

test("completions: the same script as JSON, wherever --json stands", async () => {
  const { stdout: script } = await runAgent(["completions", "fish"]);
  for (const args of [["completions", "fish", "--json"], ["--json", "completions", "fish"]]) {
    const { exit, stdout } = await runAgent(args);
    expect([exit, JSON.parse(stdout)]).toEqual([0, { shell: "fish", script }]);
  }
});
