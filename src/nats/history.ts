/**
 * Reads the kept tenures of one store, a revision after the other.
 * @module
 */
import type { TenureRecord } from "../lease/tenure.ts";
import type { Outcome, TenureRead } from "../ports/coordinator.ts";
import type { Requests } from "./requests.ts";
import { decodeRevision } from "./wire.ts";

/** KV buckets keep at most so many revisions of a key. */
const MAX_HISTORY = 64;

/** What to read. */
export interface HistoryRequest {
  /** Where the stream's leader is asked. */
  readonly readSubject: string;
  /** The subject of the key. */
  readonly key: string;
  done(outcome: Outcome<TenureRecord[]>): void;
}

/** Reads a store's tenures, newest first, each once with the newest that was recorded of it. */
export function readHistory(requests: Requests, request: HistoryRequest): void {
  const { readSubject, key, done } = request;
  const revisions: TenureRead[] = [];
  function next(seq: number): void {
    requests.send<TenureRead | null>({
      subject: readSubject,
      payload: `{"seq":${seq},"next_by_subj":"${key}"}`,
      decode: decodeRevision,
      done(outcome) {
        if (outcome.kind !== "ok") return done(outcome);
        if (outcome.value !== null) revisions.push(outcome.value);
        if (outcome.value === null || revisions.length === MAX_HISTORY) {
          return done({ kind: "ok", value: tenuresIn(revisions) });
        }
        next(outcome.value.revision + 1);
      },
    });
  }
  next(1);
}

/** A tenure is written when it begins and again when it ends: the later one says all. */
function tenuresIn(revisions: readonly TenureRead[]): TenureRecord[] {
  const tenures = new Map<string, TenureRecord>();
  for (const { record } of revisions.toReversed()) {
    if (record === null) continue;
    const tenure = `${record.epoch} ${record.incarnation}`;
    if (!tenures.has(tenure)) tenures.set(tenure, record);
  }
  return [...tenures.values()];
}
