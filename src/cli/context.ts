/**
 * What every command has around it.
 * @module
 */

/** What a command is run with, and where it leaves its exit status. */
export interface Context {
  readonly env: Readonly<Record<string, string | undefined>>;
  exit: number;
}
