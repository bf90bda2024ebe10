/**
 * The command to guard.
 * @module
 */
import { statSync } from "node:fs";
import { basename } from "node:path";
import { codeOf, reasonOf } from "../../sys/errno.ts";
import { findProgram } from "../../sys/find_program.ts";
import { EXIT, Failure } from "../failure.ts";
import { lastArguments } from "./environment.ts";

/** A program and its arguments, as bytes. */
export interface GuardedCommand {
  readonly path: Uint8Array;
  readonly argv: readonly Uint8Array[];
}

/**
 * The command in the last `count` arguments of this process, found on PATH.
 *
 * @throws {Failure} with 127 where there is none, with 126 where it cannot be run, as shells do.
 */
export function findCommand(count: number, path: string | undefined): GuardedCommand {
  const argv = lastArguments(count);
  // An empty one is a variable that was not set.
  const name = argv[0]?.toString() || '""';
  try {
    const env = path === undefined ? [] : [Buffer.from(`PATH=${path}`)];
    return { path: findProgram(argv[0]!, env), argv };
  } catch (error) {
    if (codeOf(error) === "ENOENT") {
      throw new Failure(`Cannot run ${name}: there is no such command`, EXIT.notFound);
    }
    const why = isDirectory(name) ? "it is a directory" : "it may not be executed (see chmod +x)";
    throw new Failure(`Cannot run ${name}: ${why}`, EXIT.notExecutable);
  }
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false; // found on PATH, or in a directory that may not be looked into
  }
}

/** What is told of a command that could not be started. */
export function cannotRun(command: GuardedCommand, error: unknown): Failure {
  // It was there a moment ago.
  const why = codeOf(error) === "ENOENT"
    ? "the interpreter that its first line names does not exist"
    : reasonOf(error);
  return new Failure(`Cannot run ${commandOf(command)}: ${why}`, EXIT.notExecutable);
}

/** The command's name for messages. */
export function commandOf({ argv }: GuardedCommand): string {
  return basename(Buffer.from(argv[0]!).toString());
}
