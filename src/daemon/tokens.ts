/**
 * The tokens of grants.
 * @module
 */
import { randomFillSync } from "node:crypto";

/** 128 bits: nobody guesses one. */
const TOKEN_BYTES = 16;

/** How many are drawn at once: asking the system takes as long for one as for many. */
const DRAWN = 256;

/** Makes unguessable tokens, each only once. */
export function tokenSource(): () => string {
  const drawn = Buffer.alloc(DRAWN * TOKEN_BYTES);
  let at = drawn.byteLength;
  return () => {
    if (at === drawn.byteLength) {
      randomFillSync(drawn);
      at = 0;
    }
    const token = drawn.toString("base64url", at, at + TOKEN_BYTES);
    at += TOKEN_BYTES;
    return token;
  };
}
