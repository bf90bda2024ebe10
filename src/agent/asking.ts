/**
 * Questions whether stores are held; and who wants one though nobody asks.
 * @module
 */
import type { Clock } from "../ports/clock.ts";
import type { Callers } from "./callers.ts";
import type { Engine } from "./engine.ts";
import type { Asker, Newcomers } from "./newcomers.ts";
import { forEach, type Slices } from "./slices.ts";
import type { Answer } from "./types.ts";

/**
 * First questions of one client for which the coordinator is asked at once. More of them wait for room
 * like everything that nobody waits for: they would stand before the guards of others.
 */
const AT_ONCE = 64;

/** What questions are answered with. */
export interface AskingParts {
  readonly engine: Engine;
  readonly callers: Callers;
  readonly clock: Clock;
  readonly newcomers: Newcomers;
  readonly slices: Slices;
  /** Whether nothing counts as held. */
  readonly mute: () => boolean;
}

/** Answers them: from memory, but for the first question about a store. */
export class Asking {
  readonly #parts: AskingParts;
  /** By client: first questions without an answer. */
  readonly #open = new Map<number, number>();

  constructor(parts: AskingParts) {
    this.#parts = parts;
  }

  /** Whether the store is held. */
  one(asker: Asker, store: string, answer: Answer<boolean>): void {
    const refusal = this.#parts.newcomers.refusal(asker, [store]);
    if (refusal !== null) return answer.fail(refusal);
    this.#ask(asker, store, (held) => answer.ok(held));
  }

  /** Which of the stores are held: those asked about for the first time are asked all at once. */
  many(asker: Asker, stores: readonly string[], answer: Answer<Record<string, boolean>>): void {
    const refusal = this.#parts.newcomers.refusal(asker, stores);
    if (refusal !== null) return answer.fail(refusal);
    const held: Record<string, boolean> = Object.create(null);
    let left = stores.length;
    this.#parts.slices.do(forEach(stores, (store) => {
      this.#ask(asker, store, (yes) => {
        held[store] = yes;
        if (--left === 0) answer.ok(held);
      });
      return true;
    }));
  }

  /** The stores are wanted as if somebody had asked about them now, whom nobody has to answer. */
  want(stores: Iterable<string>): void {
    const { engine, clock } = this.#parts;
    for (const code of stores) {
      const slot = engine.slot(code);
      slot.store.touch(clock.bootMs());
      engine.dispatch(slot, { type: "tick" });
    }
  }

  #ask(asker: Asker, code: string, done: (held: boolean) => void): void {
    const { engine, callers, clock, newcomers, mute } = this.#parts;
    if (mute()) return done(false);
    const slot = newcomers.slot(asker, code);
    if (!slot.store.resolved) {
      const open = this.#open.get(asker.id) ?? 0;
      this.#open.set(asker.id, open + 1);
      const id = callers.ask((held) => {
        this.#answered(asker);
        done(held && !mute());
      });
      return engine.dispatch(slot, { type: "ask", id, atOnce: open < AT_ONCE });
    }
    const nowMs = clock.bootMs();
    slot.store.touch(nowMs);
    done(slot.store.held(nowMs, engine.context));
  }

  #answered({ id }: Asker): void {
    const open = this.#open.get(id)! - 1;
    if (open > 0) this.#open.set(id, open);
    else this.#open.delete(id);
  }
}
