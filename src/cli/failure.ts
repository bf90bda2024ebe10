/**
 * How a command fails: one sentence for a person, one exit status for a script.
 * @module
 */

/** Exit statuses that are not of the protocol's kinds. */
export const EXIT = {
  ok: 0,
  /** The answer to a question is no: not held, not healthy. */
  no: 1,
  /** Used wrongly. */
  usage: 64,
  /** The agent cannot be reached. */
  unavailable: 69,
  /** A fault of the program itself. */
  software: 70,
  /** The result could not be written. */
  output: 74,
  /** The lease went while the guarded command ran. */
  lost: 79,
  /** The guarded command was found but cannot be run. */
  notExecutable: 126,
  /** The guarded command was not found. */
  notFound: 127,
} as const;

/** Ends a command with a message on stderr and an exit status. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly exit: number;

  /** `message` is a sentence that says what happened and what to do. */
  constructor(message: string, exit: number) {
    super(message);
    this.exit = exit;
  }
}

/** Used wrongly: exit status 64. */
export function usage(message: string): Failure {
  return new Failure(message, EXIT.usage);
}
