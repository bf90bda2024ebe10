/**
 * Text that others wrote, made safe to show.
 *
 * A node's name, an address, a key of the bucket, a file's content: whoever may write them must not
 * thereby write to an operator's terminal, where control characters move the cursor, rename the
 * window or type, and where invisible or direction-changing ones make a text look like another.
 * @module
 */

/**
 * Controls, what has no shape or changes the direction (bidi, zero width, tags), line separators,
 * blanks that are not the plain one, and halves of characters.
 */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;

const NAMES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** For one line on a terminal: what is hidden in `text` is spelled, as `\x1b` or `\u{202e}`. */
export function visible(text: string): string {
  return text.replace(
    HIDDEN,
    (character) => NAMES[character] ?? spelled(character.codePointAt(0)!),
  );
}

/** For one line of JSON, which stays the same value: what is hidden in it becomes `\u001b`. */
export function visibleJson(json: string): string {
  return json.replace(HIDDEN, (character) => {
    let escapes = "";
    for (let i = 0; i < character.length; i++) {
      escapes += `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
    }
    return escapes;
  });
}

function spelled(code: number): string {
  const digits = code.toString(16);
  return code < 0x100 ? `\\x${digits.padStart(2, "0")}` : `\\u{${digits}}`;
}
