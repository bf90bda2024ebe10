/**
 * Short runs of scripts/chaos: on another nats-server, with a fleet that is upgraded, without
 * namespaces; and one that must fail, which shows that a real overlap is found.
 */
import { describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { reapDir } from "../support/reaper.ts";

const CHAOS = new URL("../../scripts/chaos", import.meta.url).pathname;
const TEST_MS = 400_000;

/** Half-minutes in which an overlap must be found where nothing prevents it. */
const MAX_TRIES = 6;

/** Half a minute: three or four rounds. */
const SHORT = ["--minutes", "0.5"];

interface Outcome {
  readonly status: number;
  readonly out: string;
  readonly grants: number;
  readonly overlaps: number;
  readonly stuck: number;
  /** Where history, timeline and logs are kept. */
  readonly kept: string;
}

async function chaos(seed: number, ...args: string[]): Promise<Outcome> {
  const keep = mkdtempSync(join(tmpdir(), "chaos-test-"));
  reapDir(keep);
  const child = Bun.spawn([CHAOS, ...args, "--seed", String(seed), "--keep", keep], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const out = await new Response(child.stdout).text();
  const status = await child.exited;
  const match = /^grants=(\d+) overlaps=(\d+) stuck=(\d+)$/.exec(out.trim().split("\n").at(-1)!);
  if (match === null) throw new Error(`No summary: ${out}`);
  const [grants, overlaps, stuck] = match.slice(1).map(Number);
  return { status, out, grants, overlaps, stuck, kept: join(keep, `seed-${seed}`) };
}

function expectGood({ status, out, grants, overlaps, stuck }: Outcome): void {
  expect([overlaps, stuck]).toEqual([0, 0]);
  expect(grants).toBeGreaterThan(20);
  if (status !== 0) throw new Error(out); // It says what was wrong.
}

describe("scripts/chaos", () => {
  test.each([
    [["--minutes", "x"], "--minutes takes a number"],
    [["--fault", "nonsense"], "kill leader"],
    [["--nope"], "--nope"],
  ])("ends with 64 and says why for %p", (args, words) => {
    const run = Bun.spawnSync([CHAOS, ...args]);
    expect(run.exitCode).toBe(64);
    expect(run.stderr.toString()).toContain(words);
  });

  test("finds overlaps when agents owe no grace, and keeps what shows them", async () => {
    const faults = ["--fault", "delete entry", "--fault", "replace entry"];
    // Whether two writers meet in half a minute is a matter of chance; that they do in some is not.
    let seed = 1;
    let outcome = await chaos(seed, ...SHORT, "--grace", "0", ...faults);
    while (outcome.overlaps === 0 && seed < MAX_TRIES) {
      outcome = await chaos(++seed, ...SHORT, "--grace", "0", ...faults);
    }
    expect(outcome.status).toBe(1);
    expect(outcome.overlaps).toBeGreaterThan(0);
    expect(outcome.out).toMatch(/^overlap at .* was granted while .* was live/m);
    expect(readFileSync(join(outcome.kept, "timeline.svg"), "utf8")).toContain('stroke="red"');
    expect(existsSync(join(outcome.kept, "a1.log"))).toBe(true);
    // The saved history tells the same again.
    const again = Bun.spawnSync([CHAOS, "--check", join(outcome.kept, "history.jsonl")]);
    expect(again.exitCode).toBe(1);
    expect(again.stdout.toString().trim().split("\n").at(-1))
      .toBe(outcome.out.trim().split("\n").at(-1)!);
  }, TEST_MS);

  test("finds nothing on nats-server 2.10 of Debian trixie", async () => {
    expectGood(await chaos(2, ...SHORT, "--suite", "trixie"));
  }, TEST_MS);

  test("finds nothing when the agents are upgraded one by one under load", async () => {
    const outcome = await chaos(3, ...SHORT, "--upgrade");
    expectGood(outcome);
    expect(outcome.out.match(/upgrade agent/g)!.length).toBeGreaterThanOrEqual(3);
  }, TEST_MS);

  test("says so and goes on where there are no namespaces", async () => {
    const outcome = await chaos(4, ...SHORT, "--loopback");
    expect(outcome.out).toContain("no network namespaces");
    expectGood(outcome);
  }, TEST_MS);
});
