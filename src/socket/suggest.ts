/**
 * What somebody who mistyped may have meant.
 * @module
 */

/** Two slips of the finger; three turn too many short words into each other. */
const MAX_SLIPS = 2;

/** Those of `words` that `typed` is near to, nearest first; none for a word like nothing known. */
export function suggest(typed: string, words: readonly string[]): string[] {
  const word = typed.toLowerCase();
  // No known word is near one so long, and the distance costs the product of the lengths.
  if (word.length > 64) return [];
  return words
    .map((known) => ({ known, slips: distance(word, known) }))
    .filter(({ known, slips }) => slips <= Math.min(MAX_SLIPS, known.length / 2))
    .sort((a, b) => a.slips - b.slips)
    .map(({ known }) => known);
}

/** How many characters to insert, delete, replace or swap with their neighbour make `a` into `b`. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (same ? 0 : 1));
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) next[j] = Math.min(next[j], before[j - 2] + 1);
    }
    before = row;
    row = next;
  }
  return row[b.length];
}
