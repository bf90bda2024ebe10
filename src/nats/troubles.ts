/**
 * What is wrong with the coordinator now, and what was told of it.
 * @module
 */
import type { Problem } from "./listener.ts";

/** What is wrong: the newest is kept, and each topic is told once until all is well again. */
export class Troubles {
  readonly #listen: (problem: Problem, news: boolean) => void;
  /** Two servers that fail in turn are told once each. */
  readonly #told = new Set<string>();
  #now: Problem | null = null;

  /** @param listen called with what is new; `news`: not only in other words than before */
  constructor(listen: (problem: Problem, news: boolean) => void) {
    this.#listen = listen;
  }

  /** The newest; null where nothing is wrong. */
  get now(): Problem | null {
    return this.#now;
  }

  /** This is wrong now. */
  tell(problem: Problem): void {
    const before = this.#now;
    this.#now = problem;
    const news = !this.#told.has(problem.topic);
    this.#told.add(problem.topic);
    if (news || before?.message !== problem.message) this.#listen(problem, news);
  }

  /** Nothing is wrong any more. Returns whether something was. */
  over(): boolean {
    const wasWrong = this.#told.size > 0;
    this.#now = null;
    this.#told.clear();
    return wasWrong;
  }

  /** Whatever was told may be told again: the connection is up, so that it goes down is news. */
  forget(): void {
    this.#told.clear();
  }
}
