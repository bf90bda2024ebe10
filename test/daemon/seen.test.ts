import { expect, test } from "bun:test";
import { seenProcesses } from "../../src/daemon/seen.ts";
import { Cgroup, cgroupProblem } from "../../src/sys/cgroup.ts";
import { reap } from "../support/reaper.ts";
import { until } from "../support/wait.ts";

/** Debian's nobody. */
const NOBODY = 65_534;

const isRoot = process.getuid!() === 0;

/** A process that runs `sleep`, as soon as it does. */
async function sleeper(wrap: readonly string[]) {
  const child = Bun.spawn([...wrap, "sleep", "600"]);
  reap(child.pid);
  const seen = await until("it is seen to sleep", async () => {
    const cmdline = await Bun.file(`/proc/${child.pid}/cmdline`).text();
    if (!cmdline.startsWith("sleep")) return undefined;
    return seenProcesses(new Set([process.getuid!()])).find(({ pid }) => pid === child.pid);
  });
  return { seen, [Symbol.dispose]: () => child.kill("SIGKILL") };
}

test("seenProcesses() tells our own user's processes", async () => {
  using child = await sleeper([]);
  expect(child.seen).toMatchObject({ uid: process.getuid!(), groups: [] });
});

test.if(isRoot)("seenProcesses() tells the real user when another is effective", async () => {
  using lent = await sleeper(["setpriv", "--ruid", `${NOBODY}`]);
  expect(lent.seen.uid).toBe(NOBODY);
  using lends = await sleeper(["setpriv", "--euid", `${NOBODY}`]);
  expect(lends.seen.uid).toBe(0);
});

test.if(isRoot && cgroupProblem() === null)("seenProcesses() tells the guards' cgroups", () => {
  const group = Cgroup.make("mark")!;
  try {
    const { result: child } = group.around(() => Bun.spawn(["sleep", "600"]));
    reap(child.pid);
    const groupsFor = (uid: number) =>
      seenProcesses(new Set([uid])).find(({ pid }) => pid === child.pid)!.groups;
    expect(groupsFor(0).at(-1)).toEqual({ maker: process.pid, mark: "mark" });
    expect(groupsFor(NOBODY)).toEqual([]);
    child.kill("SIGKILL");
  } finally {
    group.kill();
    group.remove();
  }
});
