/** What the wrapper and its watchdog decide when news come between them. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Enforcer, type EnforcerOptions } from "../../../src/cli/guard/enforcer.ts";
import { newsRead } from "../../../src/cli/guard/news.ts";
import { type Hold, killTimeMs } from "../../../src/cli/guard/plan.ts";
import { bootTimeMs } from "../../../src/sys/boot_time.ts";
import { bun } from "../../support/child.ts";
import { tempDir } from "../../support/temp_dir.ts";

const STOPPED_WRAPPER = join(import.meta.dir, "../../support/stopped_wrapper.ts");
const INSIDE_WRAPPER = join(import.meta.dir, "../../support/inside_wrapper.ts");

test("a wrapper that is stopped as it tells of a renewal learns that the watchdog ended the command", async () => {
  using dir = tempDir();
  await using wrapper = bun(STOPPED_WRAPPER, ["renewal", join(dir.path, "asked")]);
  expect(await wrapper.line()).toBe("79");
});

test("a wrapper that is stopped right before it starts the command does not start it past the deadline", async () => {
  using dir = tempDir();
  const ran = join(dir.path, "ran");
  await using wrapper = bun(STOPPED_WRAPPER, ["start", ran]);
  expect(await wrapper.line()).toBe("79");
  expect(existsSync(ran)).toBe(false);
});

test("a watchdog that kills what is in the command's cgroup spares the wrapper that starts it from there", async () => {
  await using wrapper = bun(INSIDE_WRAPPER, []);
  const said = await wrapper.line();
  if (said === "no cgroup") return; // without one there is nothing to be inside of
  expect(said).toBe("alive");
  expect(await wrapper.line()).toBe("the watchdog ended it");
});

function holdFor(remainingMs: number): Hold {
  return { deadlineMs: bootTimeMs() + remainingMs, killAfterMs: 500, endingSinceMs: null };
}

/** An enforcer of no processes, and what it did. */
function plainEnforcer(options: EnforcerOptions = {}) {
  const acts: Hold[] = [];
  const place = { mark: "fedcba9876543210", group: null, cgroup: null, lock: null };
  const enforcer = new Enforcer(place, { ...options, onAct: (hold) => acts.push(hold) });
  return { enforcer, acts };
}

/** One whose reprieve is `reprieve`. */
function enforcerOf(reprieve: () => Promise<Hold | null>) {
  return plainEnforcer({ reprieve });
}

test("what is told while the agent is asked for a reprieve counts, though the answer brings none", async () => {
  const { promise, resolve } = Promise.withResolvers<null>();
  const { enforcer, acts } = enforcerOf(() => promise);
  enforcer.update(holdFor(400)); // less than it has to end in: asks at once
  enforcer.update(holdFor(60_000));
  resolve(null);
  await newsRead();
  await newsRead();
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

test("a command that has next to no time to end in is not asked or killed before the agent was asked in time", async () => {
  let questions = 0;
  const { enforcer, acts } = enforcerOf(() => {
    questions++;
    return Promise.resolve({ ...holdFor(60_000), killAfterMs: 0 });
  });
  // Half a second for an answer, and the timer may be late.
  enforcer.update({ ...holdFor(10_000), killAfterMs: 0 });
  expect(questions).toBe(0);
  enforcer.update({ ...holdFor(550), killAfterMs: 0 });
  expect(questions).toBe(0); // an older deadline than the one it knows
  enforcer.stop();
  enforcer.update({ ...holdFor(550), killAfterMs: 0 });
  expect(questions).toBe(1);
  await Bun.sleep(700);
  expect({ questions, acts }).toEqual({ questions: 1, acts: [] });
  enforcer.stop();
});

test("a reprieve that is denied is not asked for again, and the command ends at its time", async () => {
  let questions = 0;
  const { enforcer, acts } = enforcerOf(() => {
    questions++;
    return Promise.resolve(null);
  });
  const hold = { ...holdFor(500), killAfterMs: 0 };
  enforcer.update(hold);
  while (acts.length === 0) await Bun.sleep(1);
  expect(questions).toBe(1);
  expect(acts[0]!.endingSinceMs).toBeGreaterThanOrEqual(killTimeMs(hold));
  enforcer.stop();
});

/** When an agent that does not answer was asked, and when the command was to be ended. */
async function askInVain(): Promise<{ asked: number[]; killAtMs: number }> {
  const asked: number[] = [];
  const { enforcer, acts } = enforcerOf(() => {
    asked.push(bootTimeMs());
    return Promise.reject(new Error("nobody there"));
  });
  const hold = { ...holdFor(500), killAfterMs: 0 };
  enforcer.update(hold);
  while (acts.length === 0) await Bun.sleep(1);
  enforcer.stop();
  return { asked, killAtMs: killTimeMs(hold) };
}

test("a reprieve that is not answered is asked for again, but not once it is time", async () => {
  let most = 0;
  // On a machine that stands still for half a second there is no second time.
  while (most < 2) {
    const { asked, killAtMs } = await askInVain();
    expect(asked.length).toBeLessThan(8); // every tenth of a second
    expect(asked.filter((ms) => ms >= killAtMs)).toEqual([]);
    most = Math.max(most, asked.length);
  }
});

test("deadlines that are told one by one after a stop are all read before anything is done by them", async () => {
  const { enforcer, acts } = plainEnforcer();
  for (const remainingMs of [-9_000, -6_000, -3_000, 60_000]) enforcer.update(holdFor(remainingMs));
  await newsRead();
  await newsRead();
  expect(acts).toEqual([]);
  enforcer.stop();
});

test("when all that was told after a stop is past, the command ends", async () => {
  const { enforcer, acts } = plainEnforcer();
  for (const remainingMs of [-9_000, -6_000, -3_000]) enforcer.update(holdFor(remainingMs));
  while (acts.length === 0) await Bun.sleep(1);
  enforcer.stop();
});
