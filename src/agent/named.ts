/**
 * Some of many, in words.
 * @module
 */

/** How many a message names. */
const MAX_NAMED = 3;

/** These, one after the other: the first of them, and how many more there are. */
export function named(all: readonly string[]): string {
  const more = all.length > MAX_NAMED ? ` and ${all.length - MAX_NAMED} more` : "";
  return all.slice(0, MAX_NAMED).join(", ") + more;
}
