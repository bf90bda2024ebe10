/**
 * Variables that look like settings of `agent run` and are none.
 *
 * They are no error: an older agent must start with a newer one's settings. But a setting that is
 * believed to be in force and is not must not stay unnoticed.
 * @module
 */
import { suggest } from "../socket/suggest.ts";
import type { Env } from "./flag_values.ts";
import { FLAGS, twinOf } from "./run_flags.ts";

const PREFIX = twinOf("");

/** Read elsewhere: for the stack of a fault. */
const OTHERS = [twinOf("debug")];

/** A sentence for each in `env`, with the nearest one that is a setting. */
export function unknownVariables(env: Env): string[] {
  const known = new Set([...FLAGS.map(({ name }) => twinOf(name)), ...OTHERS]);
  return Object.keys(env)
    .filter((name) => name.startsWith(PREFIX) && !known.has(name))
    .sort()
    .map((name) => {
      const [near] = suggest(flagOf(name), FLAGS.map((flag) => flag.name));
      const meant = near === undefined ? "see `agent help run`" : `did you mean ${twinOf(near)}?`;
      return `${name} is set, but there is no such setting, so it does nothing; ${meant}`;
    });
}

function flagOf(variable: string): string {
  return variable.slice(PREFIX.length).toLowerCase().replaceAll("_", "-");
}
