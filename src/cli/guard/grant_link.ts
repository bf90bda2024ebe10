/**
 * The wrapper's side of its grant: what the agent tells of it, and what it answers when asked.
 * @module
 */
import { AgentError } from "../../client/mod.ts";
import type { Notification } from "../../client/mod.ts";
import { bootTimeMs } from "../../sys/boot_time.ts";
import type { LockedGrant } from "./locked_grant.ts";
import { newsRead } from "./news.ts";

/** The agent answers a release from memory; one that hangs must not hold up the exit status. */
const RELEASE_WITHIN_MS = 2_000;
/** As above, while the command runs on or waits to be started. */
const VERIFY_WITHIN_MS = 500;

/** What is told of a grant. */
export interface GrantListener {
  /** The lease lives until then, on CLOCK_BOOTTIME; may be older than what is known. */
  onDeadline(deadlineMs: number): void;
  /** The lease is gone. */
  onLost(): void;
  /** The agent is: nothing more is told. */
  onAgentGone(): void;
}

/** One grant and the connection on which it lives. */
export class GrantLink {
  readonly #grant: LockedGrant;
  readonly #listener: GrantListener;
  #lost: string | null = null;
  #reason = "the agent did not renew it in time";

  /** Listens from now on, also to what came right behind the grant. */
  constructor(grant: LockedGrant, listener: GrantListener) {
    this.#grant = grant;
    this.#listener = listener;
    grant.connection.onNotification((notification) => this.#take(notification));
    for (const notification of grant.early) this.#take(notification);
    grant.connection.closed.then((why) => {
      if (why === null) return;
      this.#reason = "the agent is gone";
      listener.onAgentGone();
    });
  }

  /** What the agent says of a lease that is gone; null while it does not say so. */
  get lost(): string | null {
    return this.#lost;
  }

  /** Why the lease is not renewed, as far as that is known. */
  get reason(): string {
    return this.#reason;
  }

  /**
   * Asks the agent whether the lease lives. Resolves when the listener knows what it said, and all that
   * it told before; that may be nothing.
   */
  async prove(): Promise<void> {
    const { token, store } = this.#grant.result;
    // Read before the question: what the answer proves is counted from no later than this.
    const askedMs = bootTimeMs();
    const signal = AbortSignal.timeout(VERIFY_WITHIN_MS);
    try {
      const call = this.#grant.connection.call("verify", { token, store }, { signal });
      this.#listener.onDeadline(askedMs + (await call).remaining_ms);
    } catch (error) {
      if (!this.#noteLoss(error)) return await newsRead();
      this.#listener.onLost();
    }
  }

  /**
   * Gives the grant back. What the command left running keeps the lock, which it inherited; the store
   * stays busy on this host until that ends.
   */
  async release(): Promise<"released" | "lost" | "unknown"> {
    const { token } = this.#grant.result;
    const signal = AbortSignal.timeout(RELEASE_WITHIN_MS);
    try {
      await this.#grant.connection.call("release", { token }, { signal });
      return "released";
    } catch (error) {
      return this.#noteLoss(error) ? "lost" : "unknown";
    }
  }

  #take(notification: Notification): void {
    if (notification.method === "lease") return;
    if (notification.params.token !== this.#grant.result.token) return;
    if (notification.method === "renewed") {
      this.#listener.onDeadline(notification.params.deadline_boot_ms);
    } else if (notification.method === "lost") {
      this.#lost ??= sentence(notification.params.message);
      this.#listener.onLost();
    }
  }

  #noteLoss(error: unknown): boolean {
    if (!(error instanceof AgentError && error.kind === "lost")) return false;
    this.#lost ??= sentence(error.message);
    return true;
  }
}

/** As a part of another. */
function sentence(message: string): string {
  return message.replace(/\.$/, "");
}
