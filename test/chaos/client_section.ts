/**
 * A client's side of a grant: what it knows of it, and notes.
 * @module
 */
import { AgentError, AgentUnreachable, type Connection } from "../../src/client/mod.ts";
import { bootTimeMs } from "../../src/sys/boot_time.ts";
import type { HistoryFile } from "./history.ts";

/**
 * A writer does not begin a write so shortly before its deadline that a busy machine could end it
 * later: what a writer owes the protocol, which tells it the deadline.
 */
export const WRITE_MARGIN_MS = 250;

/** A grant, and what its client knows of it. */
export class Section {
  readonly #connection: Connection;
  readonly #history: HistoryFile;
  readonly #grant: { readonly id: string; readonly token: string; readonly store: string };
  readonly #stopListening: () => void;
  #deadlineMs: number;
  #over = false;

  constructor(
    connection: Connection,
    history: HistoryFile,
    grant: { id: string; token: string; store: string; deadlineMs: number },
  ) {
    this.#connection = connection;
    this.#history = history;
    this.#grant = grant;
    this.#deadlineMs = grant.deadlineMs;
    this.#stopListening = connection.onNotification(({ method, params }) => {
      if (!("token" in params) || params.token !== grant.token) return;
      if (method === "lost") this.#lost(params.kind);
      if (method === "renewed") this.#extend("renewed", params.deadline_boot_ms);
    });
    connection.closed.then(() => this.#lost("closed"));
  }

  /** Verifies, as every write must be right before it is made; false when the grant is over. */
  async prove(): Promise<boolean> {
    const { token, store, id } = this.#grant;
    const sentMs = bootTimeMs();
    try {
      const { remaining_ms } = await this.#connection.call("verify", { token, store });
      // Counted from the question: the answer was on its way for a while.
      this.#extend("verify", sentMs + remaining_ms, sentMs);
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      if (error instanceof AgentUnreachable) this.#lost("closed");
      else if (error.kind === "unavailable") this.#lost("unverified");
      else if (!this.#over) {
        this.#over = true;
        this.#history.note({ kind: "unverified", id, why: error.kind });
      }
    }
    return !this.#over;
  }

  mayWrite(nowMs: number): boolean {
    if (!this.#over && nowMs > this.#deadlineMs - WRITE_MARGIN_MS) {
      this.#lost("deadline");
    }
    return !this.#over;
  }

  /**
   * Gives the grant back, dead or alive: the turn is taken until then. If `curious`, asks what a verify
   * has to say of a grant that is over.
   */
  async release(curious: boolean): Promise<void> {
    const { id, token } = this.#grant;
    if (!this.#over) this.#history.note({ kind: "release", id });
    else if (curious) await this.#askAfterwards(false);
    this.#over = true;
    this.#stopListening();
    try {
      await this.#connection.call("release", { token });
    } catch (error) {
      // One that is told that its lease was lost is over all the same.
      if (!(error instanceof AgentError) || error.kind !== "lost") return;
    }
    if (curious) await this.#askAfterwards(true);
  }

  async #askAfterwards(released: boolean): Promise<void> {
    const { id, token, store } = this.#grant;
    let answer: string;
    try {
      await this.#connection.call("verify", { token, store });
      answer = "ok";
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      if (error instanceof AgentUnreachable) return;
      answer = error.kind;
    }
    this.#history.note({ kind: "afterwards", id, released, answer });
  }

  #extend(by: "verify" | "renewed", deadlineMs: number, sentMs?: number): void {
    if (this.#over) return;
    this.#deadlineMs = Math.max(this.#deadlineMs, deadlineMs);
    this.#history.note({ kind: "extended", id: this.#grant.id, by, deadlineMs, sentMs });
  }

  #lost(why: string): void {
    if (this.#over) return;
    this.#over = true;
    this.#history.note({ kind: "lost", id: this.#grant.id, why });
  }
}
