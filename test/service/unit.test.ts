/** The systemd units agree with the agent that they run. */
import { expect, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseDurationMs } from "../../src/cli/duration.ts";
import { parseRunOptions } from "../../src/cli/parse_run_options.ts";
import { AGENT, finish } from "../support/agent_under_test.ts";

const SCRIPTS = join(import.meta.dir, "../../scripts");
const SERVICE = readFileSync(join(SCRIPTS, "zit-agent.service"), "utf8");
const SOCKET = readFileSync(join(SCRIPTS, "zit-agent.socket"), "utf8");
const DEFAULTS = parseRunOptions({ standalone: "for its defaults" }, {
  env: {},
  socketPath: "/run/zit-agent/agent.sock",
});

function settings(unit: string, name: string): string[] {
  return unit.split("\n").filter((line) => line.startsWith(`${name}=`))
    .map((line) => line.slice(name.length + 1));
}

test("the service waits for READY, always restarts, and clears Bun's variables", () => {
  expect(settings(SERVICE, "Type")).toEqual(["notify"]);
  expect(settings(SERVICE, "Restart")).toEqual(["always"]);
  const cleared = settings(SERVICE, "UnsetEnvironment").join(" ").split(" ");
  expect(cleared).toEqual(expect.arrayContaining(["BUN_BE_BUN", "BUN_OPTIONS", "BUN_INSPECT"]));
});

test("the service waits before it tries again what would fail again", () => {
  const [command] = settings(SERVICE, "ExecStopPost");
  const [, script] = /^-\/bin\/sh -c '(.*)'$/.exec(command!)!;
  const waits = (status: string) => {
    // A sleep that tells how long.
    const run = Bun.spawnSync(["sh", "-c", `sleep() { echo "$1"; }; ${script}`], {
      env: { EXIT_STATUS: status },
    });
    return `${run.stdout}`.trim();
  };
  expect(["0", "64", "KILL"].map(waits)).toEqual(["", "", ""]);
  expect(["73", "78"].map(waits)).toEqual(["5", "5"]);
  expect(["70", "SEGV", "ILL"].map(waits)).toEqual(["1", "1", "1"]);
});

test("the service gives a clean end more time than --drain takes by default", () => {
  const stopMs = parseDurationMs(settings(SERVICE, "TimeoutStopSec")[0]!);
  expect(stopMs).toBeGreaterThan(DEFAULTS.drainMs + 5_000);
});

test("the units make the directories and the socket that the agent uses by default", () => {
  expect(settings(SERVICE, "StateDirectory").map((name) => `/var/lib/${name}`))
    .toEqual([DEFAULTS.stateDir]);
  expect(settings(SERVICE, "RuntimeDirectory").map((name) => `/run/${name}/agent.sock`))
    .toEqual([DEFAULTS.socketPath]);
  expect(settings(SOCKET, "ListenStream")).toEqual([DEFAULTS.socketPath]);
  expect(settings(SOCKET, "SocketMode")).toEqual(["0660"]);
  const store = DEFAULTS.lockPath.split("/{store}")[0];
  expect(settings(SERVICE, "ReadWritePaths")).toEqual([`-${store}`]);
});

test.skipIf(Bun.which("systemd-analyze") === null)(
  "systemd finds no fault in the units",
  async () => {
    const directory = mkdtempSync(join(tmpdir(), "zit-unit-"));
    try {
      const service = SERVICE.replace("/usr/local/bin/agent", AGENT);
      writeFileSync(join(directory, "zit-agent.service"), service);
      cpSync(join(SCRIPTS, "zit-agent.socket"), join(directory, "zit-agent.socket"));
      const verify = (name: string) =>
        finish(Bun.spawn({
          cmd: ["systemd-analyze", "verify", "--man=no", join(directory, name)],
          stdout: "pipe",
          stderr: "pipe",
        }));
      expect(await verify("zit-agent.service")).toMatchObject({ exit: 0, stderr: "" });
      expect(await verify("zit-agent.socket")).toMatchObject({ exit: 0, stderr: "" });
      writeFileSync(join(directory, "zit-agent.service"), `${service}\nExecStart=nowhere\n`);
      expect((await verify("zit-agent.service")).stderr).not.toBe("");
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  },
);
