/**
 * What commands print: results on stdout, messages on stderr.
 *
 * Whatever is printed is made visible here, at the last point: names, addresses and messages come
 * from other hosts, and must not reach the terminal as anything but text.
 * @module
 */
import { writeSync } from "node:fs";
import { reasonOf } from "../sys/errno.ts";
import { visible, visibleJson } from "../sys/visible.ts";
import { EXIT, Failure } from "./failure.ts";

const STDOUT = 1;
const STDERR = 2;

/** Text of ours in a style: the only thing that is printed as it is. */
export class Styled {
  readonly text: string;

  /** Made by {@linkcode painter}. */
  constructor(text: string) {
    this.text = text;
  }
}

/** A part of a line. */
export type Piece = string | Styled;

let read = true;

/** Whether somebody may still read stdout: no write has shown otherwise. */
export function isRead(): boolean {
  return read;
}

/** Writes a line to stdout, made of `pieces`. */
export function print(...pieces: readonly Piece[]): void {
  const line = pieces.map((each) => typeof each === "string" ? visible(each) : each.text).join("");
  writeAll(STDOUT, `${line}\n`);
}

/** Writes a value to stdout as one line of JSON. */
export function printJson(value: unknown): void {
  writeAll(STDOUT, `${visibleJson(JSON.stringify(value))}\n`);
}

/** Writes a message to stderr, naming the program as others on the same terminal do. */
export function say(message: string): void {
  writeAll(STDERR, `agent: ${visible(message)}\n`);
}

/** Writes to stderr as it is: nothing that others wrote. */
export function writeStderr(text: string): void {
  writeAll(STDERR, text);
}

/** Writes to stdout as it is: nothing that others wrote. */
export function writeStdout(text: string): void {
  writeAll(STDOUT, text);
}

/**
 * Written synchronously, so that nothing is lost when the process exits right after. A reader that
 * went away (`| head`) is no fault of ours, nor is one that never was (`>&-`): the rest is dropped.
 *
 * @throws {Failure} where a result cannot be written for another reason, such as a full disk: half of
 * one must not pass for it.
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
      if (fd !== STDOUT) return;
      if (code !== "EPIPE" && code !== "EBADF") {
        throw new Failure(`Cannot write the result: ${reasonOf(error)}`, EXIT.output);
      }
      read = false;
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

/** How to write words of ours in a style. */
export type Paint = (style: keyof typeof SGR, text: string) => Piece;

/** Paints text, or leaves it, as `enabled` says. */
export function painter(enabled: boolean): Paint {
  return (style, text) => enabled ? new Styled(`\x1b[${SGR[style]}m${text}\x1b[0m`) : text;
}

/** "1 store", "2 stores". */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

/** So many characters of a code tell it from others, and leave room for the rest of a line. */
const MAX_SHORTENED = 32;

/** A store's code for a line that has more to say: a long one without its middle. */
export function shortened(code: string): string {
  if (code.length <= MAX_SHORTENED) return code;
  const half = MAX_SHORTENED / 2;
  return `${code.slice(0, half - 1)}…${code.slice(-half)}`;
}

/** A cell that is wider lets its own row stick out, and not all others. */
const MAX_COLUMN = 40;

/** Lays rows out in columns, two spaces apart, with no trailing blanks. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const shown = rows.map((row) => row.map(visible));
  const widths: number[] = [];
  for (const row of shown) {
    row.forEach((cell, i) => {
      const width = Bun.stringWidth(cell);
      if (width <= MAX_COLUMN) widths[i] = Math.max(widths[i] ?? 0, width);
    });
  }
  return shown.map((row) =>
    row.map((cell, i) => padded(cell, widths[i] ?? 0)).join("  ").trimEnd()
  );
}

/** By what a terminal shows: a letter of some scripts takes two columns. */
function padded(cell: string, width: number): string {
  return cell + " ".repeat(Math.max(0, width - Bun.stringWidth(cell)));
}
