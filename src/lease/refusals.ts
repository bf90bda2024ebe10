/**
 * The refusals of a guard or a verify, each a sentence that says what happened, to which store, and
 * what to do next.
 * @module
 */
import { atMost } from "./duration_text.ts";
import type { Holder, Refusal } from "./errors.ts";
import { notAStoreCode } from "./store_code.ts";
import type { LockRefusal } from "./store_events.ts";

/** The coordinator cannot be reached, or does not do what it is asked to. */
export function unavailable(store: string, reason: string): Refusal {
  return {
    kind: "unavailable",
    message: `Cannot guard store ${store}: ${unusable(reason)}; ` +
      "nothing may be written until it is back, so try again later",
    retryAfterMs: 1_000,
  };
}

/** The connection to the coordinator is known to be down. */
export function unreachable(store: string, { downReason }: { downReason?: string }): Refusal {
  return unavailable(store, downReason ?? "not connected");
}

/** A write that runs cannot be proven now; its lease may hold all the same. */
export function cannotVerify(store: string, reason: string): Refusal {
  return {
    kind: "unavailable",
    message: `Cannot verify the write to store ${store}: ${unusable(reason)}; ` +
      "do not let it take effect before it is verified, so try again",
    retryAfterMs: 1_000,
  };
}

/** A question that only the coordinator can answer: who `holds`, or `held`, a store. */
export function cannotTell(
  store: string,
  reason: string,
  what: "holds" | "held" = "holds",
): Refusal {
  return {
    kind: "unavailable",
    message: `Cannot tell who ${what} store ${store}: ${unusable(reason)}; try again later`,
    retryAfterMs: 1_000,
  };
}

/**
 * Another node than ours (`self`) holds it; `holder` is null when the entry went without our doing and
 * nobody has it.
 */
export function notHolder(store: string, holder: Holder | null, self: string): Refusal {
  if (holder === null) {
    return {
      kind: "not_holder",
      message: `Cannot guard store ${store}: this node just lost it, and nobody holds it yet; ` +
        "try again",
      holder,
    };
  }
  const where = holder.address === null ? "" : ` (${holder.address})`;
  if (holder.node === self) {
    // To send the write to a node of this name would be to send it here.
    return {
      kind: "not_holder",
      message:
        `Cannot guard store ${store}: another agent that calls itself ${self}, too${where}, ` +
        "holds it, or did when this host was started again; if it still runs, give each host a name of " +
        "its own (--node), else wait until its lease has run out",
      holder,
    };
  }
  return {
    kind: "not_holder",
    message: `Cannot guard store ${store}: node ${holder.node}${where} holds it; ` +
      "send the write there, or wait for the lease",
    holder,
  };
}

/** Ours, but a displaced holder may still be finishing. */
export function inGrace(store: string, leftMs: number): Refusal {
  const retryAfterMs = Math.max(1, Math.ceil(leftMs));
  return {
    kind: "grace",
    message: `Cannot guard store ${store} yet: it was just taken over, and its last holder may ` +
      `still be finishing; try again in ${lasting(retryAfterMs)}`,
    retryAfterMs,
  };
}

/** An earlier agent of this host was killed, and clients that it had given grants still run. */
export function clientsLeft(store: string, leftMs: number): Refusal {
  const left = lasting(Math.max(1, Math.ceil(leftMs)));
  return {
    kind: "grace",
    message: `Cannot guard store ${store} yet: the agent was restarted, and what it had granted ` +
      `before still runs; wait for that to end, at most ${left}`,
    // It can end any moment.
    retryAfterMs: Math.max(1, Math.min(CLIENTS_RETRY_MS, Math.ceil(leftMs))),
  };
}

/** The turn is not free within the wait; `pid` has it, where somebody has a grant. */
export function turnTaken(store: string, pid: number | null): Refusal {
  const who = pid === null ? "another write" : `process ${pid}`;
  return {
    kind: "busy",
    message: `Cannot guard store ${store}: ${who} on this host has its turn; ` +
      "wait longer or try again",
  };
}

/** The lock file is locked by somebody; `by` says who, as far as that is known. */
function lockTaken(store: string, path: string, by: string | null): Refusal {
  return {
    kind: "busy",
    message: `Cannot guard store ${store}: ${path} is locked` +
      ` by ${by ?? "a process that left no name in it"}; wait for it to end, or end it`,
  };
}

/** The lock file is locked, and others of this host wait for it, too. */
export function lockAwaited(store: string): Refusal {
  return {
    kind: "busy",
    message: `Cannot guard store ${store}: its lock file is locked by another process, and ` +
      "other guards wait for it, too; wait longer or try again",
  };
}

/** No directory for the lock file. */
function unknownStore(store: string, path: string): Refusal {
  return {
    kind: "unknown_store",
    message: `Cannot guard store ${store}: the directory of ${path} does not exist; ` +
      "create the store first, or correct its code",
  };
}

/** The lock could not be had, for whatever reason. */
export function lockRefusal(store: string, failure: LockRefusal): Refusal {
  switch (failure.kind) {
    case "busy":
      return lockTaken(store, failure.path, failure.by);
    case "unknown_store":
      return unknownStore(store, failure.path);
    case "error":
      return misconfigured(store, failure.message);
  }
}

/**
 * The disk or the tenure records have seen a newer epoch than ours; `copyOf`: in a lock file that speaks
 * of that other store.
 */
export function staleEpoch(
  store: string,
  epoch: number,
  seen: { readonly epoch: number; readonly copyOf?: string | null },
): Refusal {
  const cannot = `Cannot guard store ${store}`;
  if (seen.copyOf) {
    return {
      kind: "stale_epoch",
      message: `${cannot}: its lock file speaks of store ${seen.copyOf}, at epoch ${seen.epoch}, ` +
        `newer than ours (${epoch}): the directory of that store was copied or moved here, lock file ` +
        "and all; empty the lock file here once you know that nobody writes under it",
    };
  }
  return {
    kind: "stale_epoch",
    message: `${cannot}: epoch ${seen.epoch} is on record, newer than ours (${epoch}); ` +
      "either this node is stale, or the coordinator has lost its past; an operator must compare " +
      "the store's lock file, agent history and the coordinator's bucket",
  };
}

/**
 * The agent is shutting down (`forMs` Infinity), or the store was stepped down for that long; while
 * `writing` is not null, somebody still writes, for at most `leftMs` more.
 */
export function draining(
  store: string,
  forMs = Infinity,
  writing: { pid: number; leftMs: number } | null = null,
): Refusal {
  if (forMs === Infinity) {
    return {
      kind: "draining",
      message: `Cannot guard store ${store}: this agent is shutting down; ` +
        "send the write to another node, or try again when the agent is back",
    };
  }
  const retryAfterMs = Math.max(1, Math.ceil(forMs));
  if (writing !== null) {
    const left = writing.leftMs === Infinity ? "" : ` for at most ${lasting(writing.leftMs)} more`;
    return {
      kind: "draining",
      message:
        `Cannot guard store ${store}: process ${writing.pid} writes${left} before this node ` +
        "steps down from it; send the write to another node then",
      retryAfterMs,
    };
  }
  return {
    kind: "draining",
    message: `Cannot guard store ${store}: an operator had this node step down from it, for ` +
      `another ${lasting(retryAfterMs)} or so; send the write to another node, or try again then`,
    retryAfterMs,
  };
}

/** The lease went while the write ran. */
export function lost(store: string, why: string): Refusal {
  return {
    kind: "lost",
    message:
      `The lease of store ${store} is lost: ${why}; stop writing, and check what was written`,
  };
}

/** A token that proves nothing. */
export function noToken(store?: string): Refusal {
  return {
    kind: "no_token",
    message: `No such grant${store === undefined ? "" : ` for store ${store}`}: the token is ` +
      "made up, released, or belongs to another store; ask for a guard",
  };
}

/** What was asked about is no store. */
export function noStoreCode(code: string): Refusal {
  return {
    kind: "invalid",
    message: `Cannot answer "guard": Parameter store ${notAStoreCode(code)}`,
  };
}

/** The setup contradicts the agent, or the store's lock file or the journal of grants cannot be used. */
export function misconfigured(store: string, reason: string): Refusal {
  return { kind: "misconfigured", message: `Cannot guard store ${store}: ${reason}` };
}

/** Too many of something. */
export function limit(store: string, reason: string): Refusal {
  return {
    kind: "limit",
    message: `Cannot guard store ${store}: ${reason}; try again when some have ended`,
    retryAfterMs: 1_000,
  };
}

/** How soon to ask again whether the processes of an earlier agent are gone. */
const CLIENTS_RETRY_MS = 1_000;

/** `reason` without its second sentence: what an operator can do about it is told by the check. */
function unusable(reason: string): string {
  return `the coordinator cannot be used (${reason.replace(/\. [A-Z].*$/s, "")})`;
}

/** `350 ms`, `3.2 s`; from a minute on, where tenths tell nobody anything, `59m58s`. */
function lasting(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.ceil(ms))} ms`;
  return ms < 60_000 ? `${(ms / 1_000).toFixed(1)} s` : atMost(ms);
}
