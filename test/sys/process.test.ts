import { expect, test } from "bun:test";
import { child } from "../support/child.ts";
import {
  bootId,
  commandOf,
  parseStat,
  processExists,
  processStartTime,
  processState,
} from "../../src/sys/proc.ts";
import { descriptorLimit } from "../../src/sys/process.ts";

const MODULE = JSON.stringify(import.meta.resolve("../../src/sys/process.ts"));

/** Runs code with everything of process.ts at hand, in a process of its own. */
function inChild(code: string) {
  return child([process.execPath, "-e", `import * as p from ${MODULE};\n${code}`]);
}

test("descriptorLimit() reads what the shell calls ulimit", async () => {
  await using shell = child([
    "sh",
    "-c",
    'ulimit -S -n 300; ulimit -H -n 400; exec "$0" -e "$1"',
    process.execPath,
    `import * as p from ${MODULE};
    console.log(JSON.stringify(p.descriptorLimit()));
    console.log(JSON.stringify(p.setDescriptorLimit(350)));
    console.log(JSON.stringify(p.setDescriptorLimit(Infinity)));`,
  ]);
  // The runtime itself may raise the soft limit when it starts.
  expect(JSON.parse(await shell.line()).hard).toBe(400);
  expect(JSON.parse(await shell.line())).toEqual({ soft: 350, hard: 400 });
  expect(JSON.parse(await shell.line())).toEqual({ soft: 400, hard: 400 });
  expect(descriptorLimit().soft).toBeGreaterThan(0);
});

test("setChildSubreaper() makes orphans ours", async () => {
  await using reaper = inChild(`
    p.setChildSubreaper();
    const shell = Bun.spawn(["sh", "-c", "sleep 60 >/dev/null & echo $!"], {stdout: "pipe"});
    const orphan = Number(await new Response(shell.stdout).text());
    await shell.exited;
    const status = await Bun.file("/proc/" + orphan + "/status").text();
    console.log(/^PPid:\\t(\\d+)$/m.exec(status)[1] === String(process.pid));
    process.kill(orphan, 9);`);
  expect(await reaper.line()).toBe("true");
});

test("processStartTime() tells this process from others and from none", async () => {
  expect(processStartTime(process.pid)).toBe(processStartTime(process.pid)!);
  expect(processStartTime(process.pid)).toBeGreaterThan(processStartTime(1)!);
  for (const none of [0, -1, 1.5, NaN, 2 ** 22 + 1]) expect(processStartTime(none)).toBeNull();
  await using sleep = child(["sleep", "60"]);
  expect(processStartTime(sleep.pid)).not.toBeNull();
  await sleep.kill();
  expect(processStartTime(sleep.pid)).toBeNull();
  expect(processExists(sleep.pid)).toBe(false);
});

test("processState() sees that a process has ended before its parent has reaped it", async () => {
  await using parent = child([
    "python3",
    "-u",
    "-c",
    `
import os, sys
pid = os.fork()
if pid == 0: os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(pid); sys.stdin.readline()`,
  ]);
  const pid = Number(await parent.line());
  expect(processState(pid)?.ended).toBe(true);
  expect(processStartTime(pid)).toBeNull();
  expect(processExists(pid)).toBe(true);
});

test("parseStat() reads past a command that looks like the end of itself", () => {
  const rest = "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
  expect(parseStat(`5 (a) Z 9 (b) ${rest}`)).toEqual({ startTime: 777, ended: false });
  expect(parseStat("5 (cut")).toBeNull();
  expect(parseStat("")).toBeNull();
});

test("parseStat() counts a process as living while threads outlive its main thread", () => {
  const stat = (threads: number) => `5 (a) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 ${threads} 0 777 0`;
  expect(parseStat(stat(2))?.ended).toBe(false);
  expect(parseStat(stat(1))?.ended).toBe(true);
});

test("commandOf() shows arguments, and no control characters", async () => {
  await using sleep = child(["sh", "-c", "echo ready; read x", "a\x1b[31mb"]);
  await sleep.line();
  expect(commandOf(sleep.pid)).toBe("sh -c echo ready; read x a?[31mb");
  expect(commandOf(2 ** 22 + 1)).toBeNull();
});

test("bootId() is an id that does not change", () => {
  expect(bootId()).toMatch(/^[0-9a-f-]{36}$/);
  expect(bootId()).toBe(bootId());
});
