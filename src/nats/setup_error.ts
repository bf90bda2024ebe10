/**
 * What contradicts the setup, and will not heal by trying again.
 * @module
 */
import { EXIT_CONFIG } from "../sys/exit.ts";

/** Something found out about the coordinator that a person should know, under a short stable name. */
export interface Finding {
  /** Names the check, as in `--check`. */
  readonly check: string;
  /** A sentence a person can act on. */
  readonly message: string;
}

/** The coordinator, or what was given to reach it, contradicts the agent. */
export class SetupError extends Error implements Finding {
  override readonly name = "SetupError";
  /** Names the check that failed, as in `--check`. */
  readonly check: string;
  /** The exit status where this is found out before READY. */
  readonly exit = EXIT_CONFIG;

  constructor(check: string, message: string) {
    super(message);
    this.check = check;
  }
}
