/**
 * Who may connect, and who may step the agent down: decided by what the kernel says of the process
 * that connected, never by what it says of itself.
 * @module
 */
import { readFileSync } from "node:fs";
import type { Refusal } from "../lease/errors.ts";
import type { Method } from "./protocol.ts";

/** The process that connected, as it was at that moment (SO_PEERCRED). */
export interface Peer {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  /** Its end of the connection, by the number of its inode; left out or 0 where nobody knows. */
  readonly socket?: number;
}

/** Who is let in. */
export interface PeerRules {
  /** `--allow-uid`. Empty with `allowGids` empty, too: whoever the socket's file mode lets in. */
  readonly allowUids: readonly number[];
  /** `--allow-gid`: the primary or a supplementary group. */
  readonly allowGids: readonly number[];
  /** `--admin-uid`: who may `stepdown`. Empty: root and the agent's own user. */
  readonly adminUids: readonly number[];
  /** The agent's own user. */
  readonly ownUid: number;
  /** The peer's supplementary groups; asked only when they decide. */
  readonly groupsOf: (peer: Peer) => readonly number[];
}

/** Decides by `rules`. A peer that may not connect may not administer either. */
export class PeerPolicy {
  readonly #rules: PeerRules;
  readonly #adminUids: readonly number[];

  constructor(rules: PeerRules) {
    this.#rules = rules;
    this.#adminUids = rules.adminUids.length > 0 ? rules.adminUids : [0, rules.ownUid];
  }

  /** Null, or why `peer` may not connect. */
  connect(peer: Peer): Refusal | null {
    const { allowUids, allowGids, groupsOf } = this.#rules;
    if (allowUids.length === 0 && allowGids.length === 0) return null;
    if (allowUids.includes(peer.uid) || allowGids.includes(peer.gid)) return null;
    if (allowGids.length > 0 && groupsOf(peer).some((gid) => allowGids.includes(gid))) return null;
    return {
      kind: "forbidden",
      message: `User ${peer.uid} may not use this agent; it is run with --allow-uid or ` +
        "--allow-gid, and neither names this user or one of its groups",
    };
  }

  /** Null, or why `peer` may not call `method`. */
  call(peer: Peer, method: Method): Refusal | null {
    if (method !== "stepdown" || this.#adminUids.includes(peer.uid)) return null;
    return {
      kind: "forbidden",
      message:
        `User ${peer.uid} may not step the agent down; users ${this.#adminUids.join(", ")} ` +
        "may (--admin-uid)",
    };
  }
}

/**
 * The supplementary groups of a process as /proc has them now; none if it cannot be read.
 *
 * The process may have exited and its number been given away since it connected. What has that number
 * now is believed only if it runs as the same user, who could have had its groups anyhow.
 */
export function groupsFromProc(peer: Peer): readonly number[] {
  let status: string;
  try {
    status = readFileSync(`/proc/${peer.pid}/status`, "utf8");
  } catch {
    return [];
  }
  return groupsInStatus(status, peer.uid);
}

/** The groups that the text of a /proc/PID/status lists, if its effective user is `uid`. */
export function groupsInStatus(status: string, uid: number): readonly number[] {
  const uids = /^Uid:\t\d+\t(\d+)/m.exec(status);
  const groups = /^Groups:\t([\d ]*)$/m.exec(status);
  if (uids === null || groups === null || Number(uids[1]) !== uid) return [];
  return groups[1].split(" ").filter((gid) => gid !== "").map(Number);
}
