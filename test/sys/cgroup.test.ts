import { afterAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, rmdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { Cgroup } from "../../src/sys/cgroup.ts";
import { endedPid } from "../support/ended_pid.ts";

const probe = Cgroup.make("probe");
const parent = probe === null ? "" : dirname(probe.path);
probe?.remove();

const where = test.skipIf(parent === "");
const made: string[] = [];

afterAll(() => {
  for (const path of made.reverse()) if (existsSync(path)) rmdirSync(path);
});

/** A group as the process `maker` would have named it. */
function group(within: string, maker: number, name: string): string {
  const path = join(within, `zit-guard-${maker}-${name}`);
  mkdirSync(path);
  made.push(path);
  return path;
}

where("remove() removes groups beneath, whose makers are gone, however deep", () => {
  const outer = Cgroup.make("outer")!;
  group(group(outer.path, endedPid(), "inner"), endedPid(), "innermost");
  outer.remove();
  expect(existsSync(outer.path)).toBe(false);
});

where("remove() leaves a group whose maker lives, and the one around it", () => {
  const outer = Cgroup.make("outer")!;
  made.push(outer.path);
  const stale = group(outer.path, endedPid(), "stale");
  const live = group(outer.path, process.pid, "live");
  outer.remove();
  expect(existsSync(stale)).toBe(false);
  expect(existsSync(live)).toBe(true);
  rmdirSync(live);
  outer.remove();
  expect(existsSync(outer.path)).toBe(false);
});

where("remove() leaves what others called otherwise", () => {
  const outer = Cgroup.make("outer")!;
  const foreign = join(outer.path, "machine");
  mkdirSync(foreign);
  made.push(outer.path, foreign);
  outer.remove();
  expect(readdirSync(outer.path)).toContain(basename(foreign));
  rmdirSync(foreign);
  outer.remove();
  expect(existsSync(outer.path)).toBe(false);
});

where("make() removes groups whose makers are gone, with those beneath", () => {
  // In a group of its own: at the top, other processes tidy up, too.
  const home = Cgroup.make("home")!;
  made.push(home.path);
  const outer = group(home.path, endedPid(), "outer");
  const inner = group(outer, endedPid(), "inner");
  const busy = group(home.path, endedPid(), "busy");
  const live = group(busy, process.pid, "live");
  const { result: next } = home.around(() => Cgroup.make("next")!);
  expect(dirname(next.path)).toBe(home.path);
  next.remove();
  expect([inner, outer].filter(existsSync)).toEqual([]);
  expect([busy, live].filter(existsSync)).toEqual([busy, live]);
});
