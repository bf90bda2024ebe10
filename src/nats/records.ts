/**
 * Tenure records as they are stored: JSON that anybody may have written, so checked.
 * @module
 */
import * as v from "valibot";
import type { TenureRecord } from "../lease/tenure.ts";
import { MAX_TTL_MS } from "../lease/timing.ts";

const Text = v.pipe(v.string(), v.nonEmpty());

const Tenure = v.object({
  node: Text,
  incarnation: Text,
  address: v.optional(v.nullable(v.string()), null),
  epoch: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
  acquired_at: Text,
  released_at: v.optional(Text),
  reason: v.optional(v.string()),
});

const decoder = new TextDecoder();

/** The record in a stored value, or null for anything that is not one. Members unknown to us are dropped. */
export function parseTenure(data: Uint8Array): TenureRecord | null {
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(data));
  } catch {
    return null;
  }
  const result = v.safeParse(Tenure, value);
  return result.success ? result.output : null;
}

/** A record's text. */
export function formatTenure({ ttlMs: _, ...record }: TenureRecord): string {
  return JSON.stringify(record);
}

/** The header, of a record's message, with the TTL that its holder goes by, in ms. */
export const TTL_HEADER = "Zit-Ttl-Ms";

/** What {@linkcode TTL_HEADER} says; undefined for anything that is no TTL. */
export function parseTtl(text: string | undefined): number | undefined {
  const ttlMs = Number(text || NaN);
  return ttlMs > 0 && ttlMs <= MAX_TTL_MS ? ttlMs : undefined;
}
