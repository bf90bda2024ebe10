/**
 * Reasons for doing without a lease.
 * @module
 */

/** Some of what Unicode calls letters is not seen, such as the Hangul fillers. */
const UNSEEN = /\p{Default_Ignorable_Code_Point}/gu;
const SAYS_SOMETHING = /[\p{L}\p{N}]/u;

/** Whether somebody who reads the text learns something from it: it has a visible letter or digit. */
export function isReason(text: string): boolean {
  return SAYS_SOMETHING.test(text.replaceAll(UNSEEN, ""));
}
