/**
 * Names, in docs/safety.md, the first seed that shows what each rule is for. To be run when the
 * behaviour of the core changed, which moves the schedules to other seeds:
 *
 *     bun test/sim/name_seeds.ts
 * @module
 */
import { readFileSync, writeFileSync } from "node:fs";
import { simulate } from "./simulate.ts";

const SAFETY = new URL("../../docs/safety.md", import.meta.url).pathname;
/** A rule whose absence shows in no schedule out of so many would need a better checker. */
const WITHIN = 5_000;

/** Those given as examples elsewhere on the page. */
const example = /--seed \d+ --mutate (\w+)/g;
const table = /^\| (`\w+`(?:, `\w+`)*) \| [\d, ]+ \|/gm;
writeFileSync(
  SAFETY,
  readFileSync(SAFETY, "utf8").replace(table, (_, rules: string) => {
    const seeds = rules.split(", ").map((rule) => firstSeed(rule.slice(1, -1)));
    return `| ${rules} | ${seeds.join(", ")} |`;
  }).replace(example, (_, rule: string) => `--seed ${firstSeed(rule)} --mutate ${rule}`),
);

function firstSeed(rule: string): number {
  for (let seed = 1; seed <= WITHIN; seed++) {
    if (simulate(seed, { rule, trace: false }).violation !== null) return seed;
  }
  throw new Error(`Nothing shows the absence of the rule ${rule} within ${WITHIN} seeds`);
}
