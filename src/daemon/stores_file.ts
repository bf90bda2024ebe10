/**
 * The file of `--stores`: one store code a line; empty lines and lines that start with `#` are
 * skipped.
 * @module
 */
import { readFileSync } from "node:fs";
import { isStoreCode } from "../lease/store_code.ts";
import { reasonOf } from "../sys/errno.ts";

/**
 * Reads the stores to hold from the start.
 *
 * @throws an error whose message names the file and the line.
 */
export function readStoresFile(path: string): Set<string> {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new Error(
      `Cannot read the stores file ${path}: ${
        reasonOf(error)
      }; make it, one store code a line, or ` +
        "correct --stores",
    );
  }
  const codes = new Set<string>();
  for (const [index, line] of text.split("\n").entries()) {
    const code = line.trim();
    if (code === "" || code.startsWith("#")) continue;
    if (!isStoreCode(code)) {
      throw new Error(
        `Line ${index + 1} of the stores file ${path} is no store code: ` +
          `${JSON.stringify(code.slice(0, 200))}; write one code a line`,
      );
    }
    codes.add(code);
  }
  return codes;
}
