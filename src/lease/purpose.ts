/**
 * What a write is for, as whoever asked for its guard put it.
 * @module
 */

/** As much of it as people are shown: it is an aside in a sentence. */
const MAX_SHOWN = 200;

/** Controls, line ends, and what is not seen or changes the direction; blanks of every kind. */
const UNSHOWN = /[\s\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]+/gu;

/** A purpose on one line, of at most 200 characters; empty where nothing of it can be shown. */
export function shownPurpose(purpose: string): string {
  const line = purpose.replace(UNSHOWN, " ").trim();
  if (line.length <= MAX_SHOWN) return line;
  // By characters, so that none is cut in half.
  const characters = [...line];
  return characters.length <= MAX_SHOWN
    ? line
    : characters.slice(0, MAX_SHOWN - 1).join("").trimEnd() + "…";
}
