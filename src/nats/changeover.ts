/**
 * Changing over to newer credentials: a connection is made with them before the old one is left.
 * @module
 */
import type { Dialer } from "./dialer.ts";
import type { Link } from "./link.ts";
import type { Finding } from "./setup_error.ts";

/** The connection that is to follow the one in use. */
export class Changeover {
  readonly #dialer: Dialer;
  #next: Link | null = null;
  #refused: Finding | null = null;

  constructor(dialer: Dialer) {
    this.#dialer = dialer;
  }

  /** Why newer credentials than those in use could not be used; null where they are. */
  get refused(): Finding | null {
    return this.#refused;
  }

  /** Whether a connection waits to be used. */
  get prepared(): boolean {
    return this.#next !== null;
  }

  /**
   * Reads the credentials again and connects with them, if they changed. Returns whether it did.
   *
   * @param inUse whether there is still a connection that goes on with the old ones
   * @throws {Error} where they cannot be used
   */
  async prepare(inUse: () => boolean): Promise<boolean> {
    const link = await this.#dialer.dialIfChanged();
    this.#refused = null;
    if (link === null) return false;
    if ("check" in link) {
      const goesOn = "; the connection made with the old credentials goes on";
      const message = `the last reload failed: ${link.message}${goesOn}`;
      // Where it ended meanwhile, the dials that follow tell what they fail for.
      if (inUse()) this.#refused = { check: link.check, message };
      throw new Error(link.message + (inUse() ? goesOn : ""));
    }
    await this.close("it was replaced before it was used");
    this.#next = link;
    return true;
  }

  /** The connection that was prepared, which is the caller's from now on; null: none was. */
  take(): Link | null {
    const link = this.#next;
    this.#next = null;
    return link;
  }

  /** The connection in use ended, or another is: nothing goes on with old credentials. */
  changed(): void {
    this.#refused = null;
  }

  /** Gives up what was prepared. */
  async close(reason: string): Promise<void> {
    await this.take()?.close(reason);
  }
}
