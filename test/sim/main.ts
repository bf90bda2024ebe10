/**
 * The simulator's command line: `--seeds N`, `--seed S`, `--mutate RULE`, `--mutations`,
 * `--verbose`. The last line is `seeds=N steps=N violations=N`; 1 on a violation.
 * @module
 */
import { parseArgs } from "node:util";
import { RULES } from "./mutations.ts";
import { simulate } from "./simulate.ts";

/** How many seeds are run when nobody says. */
const DEFAULT_SEEDS = 1_000;

function main(argv: string[]): number {
  let values: ReturnType<typeof parse>;
  try {
    values = parse(argv);
  } catch (error) {
    return usage((error as Error).message);
  }
  if (values.mutations) {
    console.log(RULES.join("\n"));
    return 0;
  }
  const rule = values.mutate ?? null;
  if (rule !== null && !RULES.includes(rule)) {
    return usage(`No such rule: ${rule}; see --mutations`);
  }
  const from = whole(values.seed ?? "1");
  const count = whole(values.seeds ?? (values.seed === undefined ? String(DEFAULT_SEEDS) : "1"));
  if (from === null) return usage("Cannot use --seed: it takes a whole number");
  if (count === null || count < 1) return usage("Cannot use --seeds: it takes a number above 0");
  return runSeeds({ from, count, rule, verbose: values.verbose ?? false });
}

function parse(args: string[]) {
  return parseArgs({
    args,
    options: {
      seeds: { type: "string" },
      seed: { type: "string" },
      mutate: { type: "string" },
      mutations: { type: "boolean" },
      verbose: { type: "boolean" },
    },
  }).values;
}

function runSeeds(
  { from, count, rule, verbose }: {
    from: number;
    count: number;
    rule: string | null;
    verbose: boolean;
  },
): number {
  let steps = 0;
  let violations = 0;
  let seeds = 0;
  for (let seed = from; seed < from + count; seed++) {
    const result = simulate(seed, { rule, trace: verbose });
    seeds++;
    steps += result.steps;
    if (verbose && result.violation === null) console.log(result.lines.join("\n"));
    if (result.violation === null) continue;
    violations++;
    const { lines } = simulate(seed, { rule, trace: true });
    console.log(lines.join("\n"));
    const { check, message } = result.violation;
    console.log(`\nseed ${seed}: ${check}: ${message}`);
    const mutate = rule === null ? "" : ` --mutate ${rule}`;
    console.log(`replay: ./scripts/sim --seed ${seed}${mutate}\n`);
    // One seed tells enough; the same fault would show in many.
    break;
  }
  console.log(`seeds=${seeds} steps=${steps} violations=${violations}`);
  return violations === 0 ? 0 : 1;
}

function whole(text: string): number | null {
  const number = Number(text);
  return /^\d+$/.test(text) && Number.isSafeInteger(number) ? number : null;
}

function usage(message: string): number {
  console.error(message);
  return 64;
}

process.exitCode = main(process.argv.slice(2));
