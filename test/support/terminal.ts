/**
 * Programs on a terminal of their own.
 * @module
 */
import { finish } from "./agent_under_test.ts";

const TERMINAL = new URL("./terminal.py", import.meta.url).pathname;

/** What is typed, waited for or done, one after the other; see terminal.py. */
export type Step = readonly ["send" | "expect" | "resize" | "wait" | "touch", string];

/** A shell with job control. */
export const SHELL = ["bash", "--norc", "--noprofile", "-i"];
/** A prompt that is found again; put together, so that its own echo does not look like it. */
export const PROMPT: readonly Step[] = [["send", `PS1='rea''dy$ '\n`], ["expect", "ready\\$ "]];

/**
 * Runs a program on a terminal, and returns what was on the screen, with `exit STATUS` behind it. Throws
 * where a step does not come about. Needs python3.
 */
export async function onTerminal(
  program: readonly string[],
  steps: readonly Step[],
  options: { readonly env: Readonly<Record<string, string>>; readonly cwd?: string },
): Promise<string> {
  const child = Bun.spawn({
    cmd: ["python3", TERMINAL, JSON.stringify(steps), ...program],
    env: { PATH: process.env.PATH!, TERM: "xterm", ...options.env },
    cwd: options.cwd,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const { exit, stdout, stderr } = await finish(child);
  if (exit !== 0) throw new Error(stdout + stderr);
  return stdout;
}
