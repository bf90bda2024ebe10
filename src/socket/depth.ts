/**
 * How deep a line of JSON is nested, at a glance: the runtime's parser takes 25 ms for 200,000 levels,
 * in which nobody else is served.
 * @module
 */

/** No request of ours nests deeper than 3; this leaves room for members that are ignored. */
export const MAX_DEPTH = 1_000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Whether `line`, JSON or not, nests deeper than {@linkcode MAX_DEPTH}. */
export function isTooDeep(line: string): boolean {
  if (line.length <= MAX_DEPTH) return false;
  let depth = 0;
  for (let at = 0; at < line.length; at++) {
    const code = line.charCodeAt(at);
    if (code === QUOTE) at = endOfString(line, at);
    else if (code === 0x5b || code === 0x7b) {
      if (++depth > MAX_DEPTH) return true;
    } else if (code === 0x5d || code === 0x7d) depth--;
  }
  return false;
}

/** The index of the quote that ends the string which begins at `start`; the line's end if none does. */
function endOfString(line: string, start: number): number {
  for (let from = start + 1;;) {
    const quote = line.indexOf('"', from);
    if (quote < 0) return line.length;
    let backslashes = 0;
    while (line.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return quote;
    from = quote + 1;
  }
}
