/**
 * What commands print: results on stdout, messages on stderr.
 * @module
 */
import { writeSync } from "node:fs";

const STDOUT = 1;
const STDERR = 2;

/** Writes a line to stdout. */
export function print(line: string): void {
  writeAll(STDOUT, `${line}\n`);
}

/** Writes a value to stdout as one line of JSON. */
export function printJson(value: unknown): void {
  print(JSON.stringify(value));
}

/** Writes a message to stderr, naming the program as others on the same terminal do. */
export function say(message: string): void {
  writeAll(STDERR, `agent: ${message}\n`);
}

/** Writes to stderr as it is. */
export function writeStderr(text: string): void {
  writeAll(STDERR, text);
}

/** Writes to stdout as it is. */
export function writeStdout(text: string): void {
  writeAll(STDOUT, text);
}

/**
 * Written synchronously, so that nothing is lost when the process exits right after. A reader that
 * went away (`| head`) is no fault of ours: the rest is dropped.
 */
function writeAll(fd: number, text: string): void {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(fd, rest));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // A pipe that is full and was made non-blocking by another of its users.
      if (code === "EAGAIN") {
        Bun.sleepSync(1);
        continue;
      }
      return;
    }
  }
}

/** Colours for people: none when piped, with NO_COLOR set, or on a dumb terminal. */
export function useColour(
  env: Readonly<Record<string, string | undefined>>,
  isTty: boolean,
): boolean {
  return isTty && !env.NO_COLOR && env.TERM !== "dumb";
}

const SGR = { bold: 1, red: 31, green: 32, yellow: 33, dim: 2 } as const;

/** Paints text, or leaves it, as `enabled` says. */
export function painter(enabled: boolean): (style: keyof typeof SGR, text: string) => string {
  return (style, text) => enabled ? `\x1b[${SGR[style]}m${text}\x1b[0m` : text;
}

/** "1 store", "2 stores". */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

/** Lays rows out in columns, two spaces apart, with no trailing blanks. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, i) => widths[i] = Math.max(widths[i] ?? 0, cell.length));
  }
  return rows.map((row) =>
    row.map((cell, i) => i === row.length - 1 ? cell : cell.padEnd(widths[i]!)).join("  ").trimEnd()
  );
}
