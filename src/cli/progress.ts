/**
 * A line at a terminal that tells how something goes, replaced as it goes on and gone at the end.
 * @module
 */
import { isatty } from "node:tty";
import { foregroundGroup, ownGroup } from "../sys/job.ts";
import { visible } from "../sys/visible.ts";
import { say, writeStderr } from "./output.ts";

/** What is over sooner than this is not worth a word. */
const QUIET_MS = 500;

/** How often to look again. */
const EVERY_MS = 1_000;

/** To the line's beginning, and nothing behind it. */
const CLEAR = "\r\x1b[K";

/** Where stderr is no terminal, nobody looks. */
export function isWatched(): boolean {
  return isatty(2);
}

/**
 * Tells what `look` finds, after half a second and then every second; on a dumb terminal once; in the
 * background nothing. Returns how to end it. `look` gets how long it has been, in milliseconds, and may
 * return null for nothing new.
 */
export function showProgress(
  look: (sinceMs: number) => Promise<string | null>,
  env: Readonly<Record<string, string | undefined>>,
): () => void {
  if (!isWatched()) return () => {};
  const dumb = env.TERM === undefined || env.TERM === "dumb";
  const startedMs = performance.now();
  let over = false;
  let shown = false;
  let timer = setTimeout(turn, QUIET_MS);
  async function turn() {
    const text = isBehind() ? null : await look(performance.now() - startedMs).catch(() => null);
    if (over) return;
    if (isBehind()) shown = false;
    else if (text !== null && dumb) return say(text);
    else if (text !== null) {
      // One row: a line that wraps could not be replaced.
      const columns = process.stderr.columns || 80;
      writeStderr(`${CLEAR}${fitting(`agent: ${visible(text)}`, columns - 1)}`);
      shown = true;
    }
    timer = setTimeout(turn, EVERY_MS);
  }
  return () => {
    over = true;
    clearTimeout(timer);
    if (shown && !isBehind()) writeStderr(CLEAR);
  };
}

/** Whether we run in the background: then the line is the shell's, and somebody may type in it. */
function isBehind(): boolean {
  const group = foregroundGroup(2);
  return group !== null && group !== ownGroup();
}

/** As much of `text` as `columns` of a terminal show. */
function fitting(text: string, columns: number): string {
  let width = 0;
  let fits = "";
  for (const character of text) {
    width += Bun.stringWidth(character);
    if (width > columns) break;
    fits += character;
  }
  return fits;
}
