/**
 * What `status` and `--check` tell of step-downs in force.
 * @module
 */
import { named } from "../agent/named.ts";
import type { StepDown, StepDowns } from "../agent/stepdowns.ts";
import type { Check } from "../agent/types.ts";
import { formatDuration } from "../lease/duration_text.ts";

/** Fails while this node has stepped down from every store: nothing can be guarded here then. */
export function stepdownCheck({ all, exempt }: StepDowns): Check[] {
  if (all === null) return [];
  const but = exempt.length === 0 ? "" : ` but ${named(exempt)}`;
  const message =
    `an operator had this node step down from every store${but} ${lasting(all)}; send ` +
    "writes to another node, or end it with `agent stepdown --all --for 0s`";
  return [{ name: "stepdown", ok: false, message }];
}

/** Single stores that this node leaves alone: others can be guarded, so it is healthy. */
export function stepdownWarnings({ ones }: StepDowns): string[] {
  if (ones.length === 0) return [];
  const which = named(ones.map((one) => `${one.store} ${lasting(one)}`));
  return [
    `an operator had this node step down from ${which}; end it with ` +
    "`agent stepdown STORE --for 0s`",
  ];
}

function lasting({ leftMs, finishing, until }: StepDown): string {
  return finishing
    ? `for ${formatDuration(leftMs)} from when its grants have finished`
    : `until ${until}`;
}
