/** What the wrapper and its watchdog decide when news come between them. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { Enforcer } from "../../../src/cli/guard/enforcer.ts";
import type { Hold } from "../../../src/cli/guard/plan.ts";
import { bootTimeMs } from "../../../src/sys/boot_time.ts";
import { bun } from "../../support/child.ts";
import { tempDir } from "../../support/temp_dir.ts";

const STOPPED_WRAPPER = join(import.meta.dir, "../../support/stopped_wrapper.ts");

test("a wrapper that is stopped as it tells of a renewal learns that the watchdog ended the command", async () => {
  using dir = tempDir();
  await using wrapper = bun(STOPPED_WRAPPER, [join(dir.path, "asked")]);
  expect(await wrapper.line()).toBe("79");
});

function holdFor(remainingMs: number): Hold {
  return { deadlineMs: bootTimeMs() + remainingMs, killAfterMs: 500, endingSinceMs: null };
}

/** An enforcer of no processes whose reprieve is `reprieve`. */
function enforcerOf(reprieve: () => Promise<Hold | null>) {
  const acts: Hold[] = [];
  const place = { mark: "fedcba9876543210", group: null, cgroup: null, lock: null };
  const enforcer = new Enforcer(place, { reprieve, onAct: (hold) => acts.push(hold) });
  return { enforcer, acts };
}

test("what is told while the agent is asked for a reprieve counts, though the answer brings none", async () => {
  const { promise, resolve } = Promise.withResolvers<null>();
  const { enforcer, acts } = enforcerOf(() => promise);
  enforcer.update(holdFor(400)); // less than it has to end in: asks at once
  enforcer.update(holdFor(60_000));
  resolve(null);
  await Bun.sleep(0);
  expect(acts).toEqual([]);
  enforcer.stop();
});

test("without a reprieve and without news the command is asked to end", async () => {
  const { promise, resolve } = Promise.withResolvers<null>();
  const { enforcer, acts } = enforcerOf(() => promise);
  enforcer.update(holdFor(400));
  expect(acts).toEqual([]);
  resolve(null);
  while (acts.length === 0) await Bun.sleep(1);
  expect(acts).toHaveLength(1);
  enforcer.stop();
});
