/**
 * The one sanctioned way around the guard.
 * @module
 */
import process from "node:process";
import { isReason } from "../lease/reason.ts";
import { InvalidError } from "./errors.ts";
import { type Grant, mintToken, type Program, type Token } from "./token.ts";

/** No more reasons than this are told apart; a reason is a sentence in the source, not data. */
const MAX_REASONS = 1_000;

const uses = new Map<string, number>();
let total = 0;

/**
 * Makes a token with no lease behind it, for any store: for tools that run where there is no fleet,
 * and for repairs by hand. Easy to find in the source by its name, counted by
 * {@linkcode unguardedUses}, and warned about on stderr once for each reason.
 *
 * @param reason Why no lease is needed here, for whoever audits it.
 * @throws {InvalidError} if the reason is empty, or nothing of it can be read.
 */
export function unguarded(reason: string): Token {
  const why = typeof reason === "string" ? reason.trim() : "";
  if (!isReason(why)) {
    throw new InvalidError("Cannot go unguarded without a reason: say why no lease is needed here");
  }
  total++;
  const before = uses.get(why) ?? 0;
  if (before > 0 || uses.size < MAX_REASONS) uses.set(why, before + 1);
  // Not as a warning of the runtime's: these can be switched off by the environment.
  if (before === 0) process.stderr.write(`Warning: UNGUARDED reason=${JSON.stringify(why)}\n`);
  return mintToken(new Unguarded(why));
}

/** How often {@linkcode unguarded} was called in this process, and how often for which reason. */
export function unguardedUses(): {
  readonly total: number;
  readonly byReason: Map<string, number>;
} {
  return { total, byReason: new Map(uses) };
}

class Unguarded implements Grant {
  readonly store = null;
  readonly epoch = null;
  readonly node = null;
  readonly lockPath = null;
  readonly signal = new AbortController().signal;
  readonly remainingMs = Infinity;
  readonly msToDeadline = Infinity;
  readonly refusal = null;
  readonly lockPasser = null;
  readonly unguarded: string;

  constructor(reason: string) {
    this.unguarded = reason;
  }

  verify(): Promise<void> {
    return Promise.resolve();
  }

  keep(program: Program): void {
    program.leave();
  }

  environment(): Record<string, string> {
    return { ZIT_LEASE_UNGUARDED: this.unguarded };
  }
}
