/**
 * Every change of one field of a history: of each event, each field made more, less, another, null, or
 * left out. Whatever no rule notices, no rule looks at.
 * @module
 */
import type { Event } from "./history.ts";
import { ask, goodHistory } from "./lies.ts";

/** A history in which one field was changed. */
export interface Mutation {
  /** The kind of event, its field, and how that was changed. */
  readonly name: string;
  /** The event as it became. */
  readonly event: Event;
  readonly history: Event[];
}

/** Far beyond everything that is allowed for. */
const FAR_MS = 20_000;

/** Fields that count; all other numbers are milliseconds. */
const COUNTS = ["seed", "epoch", "index", "seq", "fault", "status", "writes"];

/** A good history in which every kind of event is; `wrote` alone is not, which tells of a lost line. */
export function fullHistory(): Event[] {
  return [
    ...goodHistory(),
    { t: 1_650, kind: "extended", id: "a/1#2", by: "renewed", deadlineMs: 5_500 },
    { t: 10_310, kind: "afterwards", id: "b/1#3", released: true, answer: "no_token" },
    ask(40_000, "b/1#5", "b"),
    {
      t: 40_010,
      kind: "grant",
      id: "b/1#5",
      node: "b",
      store: "s",
      epoch: 20,
      deadlineMs: 43_925,
    },
    { t: 40_100, kind: "fault", fault: 2, name: "cut agent off", targets: ["b", "s1"] },
    { t: 41_000, kind: "healed", fault: 2 },
    { t: 41_100, kind: "unverified", id: "b/1#5", why: "lost" },
    { t: 41_110, kind: "afterwards", id: "b/1#5", released: false, answer: "lost" },
    { t: 50_000, kind: "fault", fault: 3, name: "kill writers", targets: ["b"] },
    ask(50_000.5, "b/1#6", "b"),
    { t: 50_001, kind: "gone", prefix: "b/1" },
    { t: 50_002, kind: "healed", fault: 3 },
  ].sort((a, b) => a.t - b.t) as Event[];
}

/** All of them. */
export function mutationsOf(history: readonly Event[]): Mutation[] {
  return history.flatMap((event, index) =>
    changesOf(event, history).map(({ path, how, changed }) => ({
      name: `${event.kind}.${path} ${how}`,
      event: changed,
      // By time, as whoever lies would write it.
      history: history.with(index, changed).toSorted((a, b) => a.t - b.t),
    }))
  );
}

interface Change {
  readonly path: string;
  readonly how: string;
  readonly changed: Event;
}

function changesOf(event: Event, history: readonly Event[]): Change[] {
  const { kind, ...fields } = event;
  const others = [...new Set(history.map((other) => other.kind))].filter((other) => other !== kind);
  return [
    ...others.map((other) => ({
      path: "kind",
      how: `is ${other}`,
      changed: { ...event, kind: other } as Event,
    })),
    ...Object.entries(fields).flatMap(([field, value]) =>
      [...valuesFor(field, value, history)].map(([how, instead]) => ({
        path: field,
        how,
        changed: { ...event, [field]: instead } as Event,
      }))
    ),
  ];
}

function* valuesFor(
  field: string,
  value: unknown,
  history: readonly Event[],
): Generator<[how: string, value: unknown]> {
  yield ["left out", undefined];
  if (value !== null) yield ["null", null];
  if (typeof value === "number") {
    const step = COUNTS.includes(field) ? 1 : FAR_MS;
    yield ["more", value + step];
    yield ["less", value - step];
  } else if (typeof value === "boolean") {
    yield ["other", !value];
  } else if (typeof value === "string") {
    yield ["unknown", `${value}x`];
    yield ["empty", ""];
    const others = history.map((event) => (event as unknown as Record<string, unknown>)[field]);
    for (const other of new Set(others)) {
      if (typeof other === "string" && other !== value) yield [`is ${other}`, other];
    }
  } else if (Array.isArray(value)) {
    yield ["without the first", value.slice(1)];
    yield ["with another", [...value, "z"]];
  } else if (typeof value === "object" && value !== null) {
    for (const [inner, was] of Object.entries(value)) {
      for (const [how, instead] of valuesFor(inner, was, history)) {
        yield [`with ${inner} ${how}`, { ...value, [inner]: instead }];
      }
    }
  }
}
