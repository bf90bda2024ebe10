/**
 * How many stores an agent gets to know because somebody asks about them. Each is tried to be held for a
 * quarter of an hour, and takes 2 KB: without a limit, one program that makes codes up could take all
 * memory and all of the coordinator's time.
 * @module
 */
import type { Refusal } from "../lease/errors.ts";
import type { Slot } from "./slot.ts";
import type { Client } from "./types.ts";

/** In all: two and a half times what a large host has, and 1 GB. Those given at start come on top. */
const MAX_STORES = 500_000;

/** Because of one user: so that none keeps others from asking. */
const MAX_STORES_OF_USER = 300_000;

/** Who asks. */
export type Asker = Pick<Client, "id" | "uid">;

/** The stores, as the engine has them. */
interface Stores {
  readonly slots: ReadonlyMap<string, Slot>;
  slot(code: string, uid: number): Slot;
}

/** Lets stores become known, up to a number. */
export class Newcomers {
  readonly #stores: Stores;
  readonly #max: { readonly all: number; readonly ofUser: number };
  readonly #byUser = new Map<number, number>();

  constructor(stores: Stores, max: { all?: number; ofUser?: number } = {}) {
    this.#stores = stores;
    this.#max = { all: max.all ?? MAX_STORES, ofUser: max.ofUser ?? MAX_STORES_OF_USER };
  }

  /** Why these stores cannot all become known; null: they can, or are known. */
  refusal(asker: Asker, codes: readonly string[]): Refusal | null {
    const { slots } = this.#stores;
    const news = codes.reduce((count, code) => slots.has(code) ? count : count + 1, 0);
    if (news === 0) return null;
    const uid = uidOf(asker);
    const room = Math.min(
      this.#max.all - slots.size,
      this.#max.ofUser - (this.#byUser.get(uid) ?? 0),
    );
    return news <= room ? null : tooMany(codes, Math.max(0, room));
  }

  /** The store, made known if it is not. */
  slot(asker: Asker, code: string): Slot {
    const known = this.#stores.slots.get(code);
    if (known !== undefined) return known;
    const uid = uidOf(asker);
    this.#byUser.set(uid, (this.#byUser.get(uid) ?? 0) + 1);
    return this.#stores.slot(code, uid);
  }

  /** The store is not known any more. */
  forgotten({ uid }: Slot): void {
    if (uid === null) return;
    const left = (this.#byUser.get(uid) ?? 0) - 1;
    if (left > 0) this.#byUser.set(uid, left);
    else this.#byUser.delete(uid);
  }
}

/** Whom nobody knows counts as one. */
function uidOf({ uid = -1 }: Asker): number {
  return uid;
}

function tooMany(codes: readonly string[], room: number): Refusal {
  const what = codes.length === 1 ? `store ${codes[0]}` : `${codes.length} stores`;
  return {
    kind: "limit",
    message:
      `Cannot ask about ${what}: this user, or all together, asked about so many stores that ` +
      `there is room for ${room} new ones; ask about fewer. Stores that nobody asks about for ` +
      "--interest make room",
    retryAfterMs: 60_000,
  };
}
