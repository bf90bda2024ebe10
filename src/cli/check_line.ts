/** The line of `agent --check`. */
import type { StatusResult } from "../client/mod.ts";
import { visible } from "../sys/visible.ts";
import { counted } from "./output.ts";

/** Failing checks and warnings by name, all in one line. */
export function checkLine({ healthy, node, checks, warnings, counts }: StatusResult): string {
  const failing = checks.filter((each) => !each.ok).map((each) => `${each.name}: ${each.message}`);
  const verdict = healthy ? `healthy: ${node} holds ${counted(counts.held, "store")}` : "unhealthy";
  const parts = [verdict, ...failing, ...warnings.map((each) => `warning: ${each}`)];
  return oneLine(parts.join("; "));
}

/** Messages can hold line breaks, which would make two lines of it, and worse. */
export function oneLine(text: string): string {
  return visible(text.replace(/\s+/g, " "));
}
