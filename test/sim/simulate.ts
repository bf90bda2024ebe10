/**
 * Runs one seed.
 * @module
 */
import type { Violation } from "./checks/checks.ts";
import { type Overrides, World } from "./world.ts";

/** What came of a seed. */
export interface Result {
  readonly violation: Violation | null;
  readonly steps: number;
  readonly grants: number;
  /** The timeline, where it was asked for. */
  readonly lines: readonly string[];
}

/** Runs one seed, with one rule switched off (null: none). */
export function simulate(
  seed: number,
  options: { rule: string | null; trace: boolean; overrides?: Overrides },
): Result {
  const world = new World(seed, options);
  if (world.trace.on) world.trace.lines.push(`seed ${seed}: ${JSON.stringify(world.plan)}`);
  world.run();
  return {
    violation: world.checks.violation,
    steps: world.scheduler.steps,
    grants: world.checks.grantCount,
    lines: world.trace.lines,
  };
}
