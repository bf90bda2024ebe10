/**
 * What is wrong, by name: for `status`, `--check` and the log.
 * @module
 */
import type { LeaseNote } from "../lease/state.ts";
import type { Check, Observer } from "./types.ts";

/** How many stores a message names. */
const MAX_NAMED = 3;

/** Everything that is wrong now. */
export class Health {
  readonly #observer: Observer;
  readonly #problems = new Map<string, string>();
  readonly #duplicates = new Set<string>();
  readonly #stale = new Set<string>();

  constructor(observer: Observer) {
    this.#observer = observer;
  }

  /** Why the coordinator cannot be reached, in words for a refusal. */
  get unreachable(): string {
    return this.#problems.get("coordinator") ?? "not connected";
  }

  /** Notes that something is wrong, or (null) right again. The observer hears of changes. */
  report(name: string, problem: string | null): void {
    if ((this.#problems.get(name) ?? null) === problem) return;
    if (problem === null) this.#problems.delete(name);
    else this.#problems.set(name, problem);
    this.#observer.problem(name, problem);
  }

  /** What a store's change says about the setup as a whole. */
  note(store: string, note: LeaseNote): void {
    switch (note.type) {
      case "foreign":
        if (note.duplicate && note.renews) this.#name(this.#duplicates, store, true);
        else if (!note.duplicate) this.#name(this.#duplicates, store, false);
        return;
      case "stale":
        return this.#name(this.#stale, store, true);
      case "acquired":
        this.#name(this.#duplicates, store, false);
        return this.#name(this.#stale, store, false);
    }
  }

  #name(set: Set<string>, store: string, add: boolean): void {
    if (set.has(store) === add) return;
    if (add) set.add(store);
    else set.delete(store);
    const named = [...set].slice(0, MAX_NAMED).join(", ");
    const more = set.size > MAX_NAMED ? ` and ${set.size - MAX_NAMED} more` : "";
    if (set === this.#duplicates) {
      this.report(
        "duplicate_node",
        set.size === 0 ? null : `another agent uses this node's name and holds ${named}${more}; ` +
          "give each host a name of its own (--node)",
      );
    } else {
      this.report(
        "epoch",
        set.size === 0
          ? null
          : `the coordinator has gone back in time for ${named}${more}: it gave ` +
            "an epoch below a recorded one; restore its data, or delete the store's tenure records " +
            "once no write of the newer epoch is missing",
      );
    }
  }

  /** The named checks, each with what to do; those in `names` are there even when all is well. */
  checks(names: Readonly<Record<string, string>>): Check[] {
    const checks: Check[] = Object.entries(names).map(([name, well]) => {
      const problem = this.#problems.get(name);
      return { name, ok: problem === undefined, message: problem ?? well };
    });
    for (const [name, message] of this.#problems) {
      if (!(name in names)) checks.push({ name, ok: false, message });
    }
    return checks;
  }
}
