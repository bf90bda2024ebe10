/**
 * Checkers of tokens: a dead one proves nothing ever again.
 * @module
 */
import type { Verified } from "../../../src/agent/types.ts";
import type { Refusal } from "../../../src/lease/errors.ts";
import type { SimClient } from "../client.ts";
import type { Checks } from "./checks.ts";
import { isUnavailableTrue } from "./refusals.ts";

/** Checks what is said about tokens. */
export class TokenChecks {
  readonly #checks: Checks;

  constructor(checks: Checks) {
    this.#checks = checks;
  }

  verified(
    client: SimClient,
    { remainingMs, askedMs, dead, asked }: Verified & {
      askedMs: number;
      dead: boolean;
      asked: string;
    },
  ): void {
    const { node, grant, wish: { store } } = client;
    const fail = (why: string) =>
      this.#checks.fail(
        "verified",
        `${node.label} verifies process ${client.pid} on ${store}, ${why}`,
      );
    if (asked !== store) return fail(`asked about ${asked}`);
    if (dead || client.tokenDead) return fail("whose token was dead");
    if (remainingMs <= 0) return fail("whose deadline is over");
    const proof = client.run!.coordinator.proofs.get(store);
    if (proof === undefined || proof.sentMs < askedMs) {
      return fail("with no acknowledged write sent since it was asked");
    }
    const file = node.disk.file(store);
    const replacedMs = node.disk.missingMs.get(store) ?? -Infinity;
    if (file?.inode !== grant!.inode && replacedMs < askedMs) fail("whose lock file was replaced");
  }

  verifyFailed(client: SimClient, { kind }: Refusal, asked: string): void {
    const { node, wish: { store } } = client;
    const fail = (why: string) =>
      this.#checks.fail(
        "kind",
        `${node.label} tells process ${client.pid} on ${store} ${kind}, ${why}`,
      );
    switch (kind) {
      case "no_token":
        // Also where it ended while it was being verified.
        if (asked === store && !client.lettingGo && !client.tokenDead && !client.over) {
          fail("but its token is good");
        }
        return;
      case "lost":
        return;
      case "unavailable":
        if (!isUnavailableTrue(this.#checks, client, this.#checks.nowMs)) {
          fail("but nothing was in its way");
        }
        return;
      default:
        return fail("which no verify is told");
    }
  }

  released(
    client: SimClient,
    { wasDead, refusal }: { wasDead: boolean; refusal: Refusal | null },
  ): void {
    const { node, wish: { store } } = client;
    if (wasDead && refusal === null) {
      const message = `${node.label} lets process ${client.pid} release ${store} as if it had ` +
        "not been lost";
      this.#checks.fail("tokens", message);
    }
    if (refusal !== null && refusal.kind !== "lost") {
      this.#checks.fail("kind", `${node.label} answers a release with ${refusal.kind}`);
    }
  }

  lost(client: SimClient, token: string): void {
    this.#checkKnown(client, token, "lost");
    if (client.tokenDead) {
      const { node, pid, wish: { store } } = client;
      this.#checks.fail(
        "tokens",
        `${node.label} tells process ${pid} lost ${store} twice, or late`,
      );
    }
  }

  deadline(
    client: SimClient,
    change: string,
    { token, deadlineMs }: { token: string; deadlineMs: number },
  ): void {
    this.#checkKnown(client, token, change);
    const { node, pid, wish: { store } } = client;
    if (client.tokenDead) {
      const message = `${node.label} tells process ${pid} ${change} of ${store} though its token ` +
        "is dead";
      return this.#checks.fail("tokens", message);
    }
    if (change === "renewed" && deadlineMs <= node.clock.bootMs()) {
      const message = `${node.label} tells process ${pid} a deadline of ${store} that is over`;
      this.#checks.fail("tokens", message);
    }
  }

  #checkKnown(client: SimClient, token: string, change: string): void {
    if (client.token === token) return;
    this.#checks.fail("tokens", `process ${client.pid} is told ${change} of a token not its own`);
  }
}
