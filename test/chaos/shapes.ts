/**
 * What the lines of a history look like: each field of each kind of event, and what may be in it.
 * Fields that are not known here come from a newer program, and are let be.
 * @module
 */
import type { Event } from "./history.ts";

/** Whether something may be the value of a field. */
type Test = (value: unknown) => boolean;

const text: Test = (value) => typeof value === "string" && value !== "";
const flag: Test = (value) => typeof value === "boolean";
/** Milliseconds, or any other number: JSON knows no infinite ones, but reads what is too great as such. */
const number: Test = (value) => Number.isFinite(value);
const count: Test = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const texts: Test = (value) => Array.isArray(value) && value.every(text);
const somewhere: Test = (value) => texts(value) && (value as string[]).length > 0;

function oneOf(...values: readonly string[]): Test {
  return (value) => values.includes(value as string);
}

function maybe(test: Test): Test {
  return (value) => value === undefined || test(value);
}

function orNull(test: Test): Test {
  return (value) => value === null || test(value);
}

function holder(value: unknown): boolean {
  const { node, epoch } = (value ?? {}) as Partial<Record<string, unknown>>;
  return text(node) && orNull(count)(epoch);
}

const PLACE = { node: text, store: text };
const GUARD = { id: text, ...PLACE };

const SHAPES = {
  setup: {
    seed: number,
    ttlMs: (value) => number(value) && (value as number) > 0,
    graceMs: (value) => number(value) && (value as number) >= 0,
    nodes: somewhere,
    older: maybe(texts),
    stores: somewhere,
    locks: oneOf("shared", "own"),
    network: oneOf("namespaces", "loopback"),
    recoveryMs: (value) => number(value) && (value as number) > 0,
    servers: text,
    sync: maybe(oneOf("always", "default")),
  },
  ask: {
    ...GUARD,
    via: oneOf("socket", "guard"),
    waitMs: (value) => number(value) && (value as number) >= 0,
    waitLease: flag,
    writes: maybe(count),
  },
  grant: { ...GUARD, epoch: count, deadlineMs: orNull(number) },
  refused: {
    ...GUARD,
    why: text,
    holder: maybe(orNull(holder)),
    retryAfterMs: maybe(orNull(number)),
    message: maybe((value) => typeof value === "string"),
  },
  extended: {
    id: text,
    by: oneOf("verify", "renewed"),
    deadlineMs: number,
    sentMs: maybe(number),
  },
  afterwards: { id: text, released: flag, answer: text },
  unverified: { id: text, why: text },
  lost: { id: text, why: text },
  release: { id: text },
  exit: { id: text, status: orNull(count) },
  gone: { prefix: text },
  written: { ...GUARD, index: number, epoch: count, seq: count, doneMs: maybe(number) },
  wrote: { id: text, seq: count },
  fault: { fault: count, name: text, targets: texts, detail: maybe(text) },
  healed: { fault: count },
  calm: {},
  disturbed: {},
  tenure: { ...PLACE, epoch: count, closed: flag },
  end: {},
} satisfies {
  readonly [K in Event["kind"]]: Readonly<
    Record<Exclude<keyof Extract<Event, { kind: K }>, "t" | "kind">, Test>
  >;
};

/** The kinds of events that there are. */
export const EVENT_KINDS = Object.keys(SHAPES) as readonly Event["kind"][];

/** Whether this is an event of a history. */
export function isEvent(value: unknown): value is Event {
  const event = value as Readonly<Record<string, unknown>> | null;
  if (typeof event !== "object" || event === null || !number(event.t)) return false;
  if (!Object.hasOwn(SHAPES, String(event.kind))) return false;
  const shape: Readonly<Record<string, Test>> = SHAPES[event.kind as Event["kind"]];
  return Object.entries(shape).every(([name, test]) => test(event[name]));
}
