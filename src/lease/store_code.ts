/**
 * Store codes: the names of stores, which are also KV keys and path components.
 * @module
 */

/** The longest store code, in characters. */
export const MAX_STORE_CODE_LENGTH = 128;

const SEGMENT = "[A-Za-z0-9_-]+";
const STORE_CODE = new RegExp(`^(?!-)${SEGMENT}(?:[./]${SEGMENT})*$`);

/**
 * Whether `code` names a store: 1 to 128 of `A-Z a-z 0-9 _ -`, with `.` or `/` only between
 * non-empty segments and no leading `-`. So a code is a safe relative path (no `..`, no `//`, not
 * absolute), a valid KV key, and never mistaken for a flag.
 */
export function isStoreCode(code: string): boolean {
  return code.length <= MAX_STORE_CODE_LENGTH && STORE_CODE.test(code);
}

/** What is wrong with `code`, for behind whatever was given as one. */
export function notAStoreCode(code: string): string {
  return `is not a store code: ${
    quoted(code)
  } (1 to ${MAX_STORE_CODE_LENGTH} of A-Z a-z 0-9 _ -, ` +
    "with . or / only between such parts, not starting with -)";
}

/** How a message names the store that `code` was given for: what is no code is quoted, and cut. */
export function storeName(code: string): string {
  return isStoreCode(code) ? code : quoted(code);
}

/** Control characters are escaped, and no more is repeated than a person reads. */
function quoted(code: string): string {
  return JSON.stringify(code.length > MAX_STORE_CODE_LENGTH ? `${code.slice(0, 64)}…` : code);
}
