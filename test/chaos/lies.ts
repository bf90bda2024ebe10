/**
 * Histories that are doctored: a good one, and one for each lie that the checker has to find.
 * @module
 */
import { expect } from "bun:test";
import type { Rule } from "./checker.ts";
import type { Event, EventOf } from "./history.ts";

/** A run that went well: a handoff after a kill, a verified write, a grace, a guarded command. */
export function goodHistory(): Event[] {
  const grant = { kind: "grant", store: "s" } as const;
  return [
    {
      t: 0,
      kind: "setup",
      seed: 1,
      ttlMs: 4_000,
      graceMs: 4_000,
      nodes: ["a", "b"],
      stores: ["s"],
      locks: "own",
      network: "namespaces",
      recoveryMs: 30_000,
      servers: "2.15.1",
    },
    { t: 100, kind: "tenure", store: "s", node: "a", epoch: 10, closed: false },
    ask(900, "a/1#1", "a"),
    { ...grant, t: 1_000, id: "a/1#1", node: "a", epoch: 10, deadlineMs: 4_910 },
    { t: 1_100, kind: "extended", id: "a/1#1", by: "verify", deadlineMs: 4_965, sentMs: 1_050 },
    written(1_200, 0, { id: "a/1#1", node: "a", epoch: 10, seq: 1 }),
    ask(1_300, "b/1#1", "b"),
    {
      t: 1_310,
      kind: "refused",
      id: "b/1#1",
      node: "b",
      store: "s",
      why: "not_holder",
      holder: { node: "a", epoch: 10 },
    },
    { t: 1_400, kind: "release", id: "a/1#1" },
    ask(1_500, "a/1#2", "a"),
    { ...grant, t: 1_600, id: "a/1#2", node: "a", epoch: 10, deadlineMs: 5_430 },
    written(1_700, 1, { id: "a/1#2", node: "a", epoch: 10, seq: 1 }),
    { t: 2_000, kind: "fault", fault: 1, name: "kill agent", targets: ["a"] },
    { t: 2_010, kind: "lost", id: "a/1#2", why: "closed" },
    ask(2_500, "a/1#3", "a"),
    { t: 2_501, kind: "refused", id: "a/1#3", node: "a", store: "s", why: "gone" },
    { t: 3_000, kind: "healed", fault: 1 },
    { t: 3_000, kind: "calm" },
    ask(8_000, "b/1#2", "b"),
    {
      t: 8_010,
      kind: "refused",
      id: "b/1#2",
      node: "b",
      store: "s",
      why: "grace",
      retryAfterMs: 2_000,
    },
    { t: 8_020, kind: "tenure", store: "s", node: "b", epoch: 20, closed: false },
    ask(9_000, "b/1#3", "b"),
    { ...grant, t: 10_100, id: "b/1#3", node: "b", epoch: 20, deadlineMs: 14_000 },
    written(10_200, 2, { id: "b/1#3", node: "b", epoch: 20, seq: 1 }),
    { t: 10_300, kind: "release", id: "b/1#3" },
    { ...ask(10_400, "b/2#1", "b", 5_000), via: "guard", writes: 1 } as Event,
    { ...grant, t: 10_500, id: "b/2#1", node: "b", epoch: 20, deadlineMs: null },
    written(10_600, 3, { id: "b/2#1", node: "b", epoch: 20, seq: 1 }),
    ask(10_650, "b/1#4", "b"),
    { t: 10_660, kind: "refused", id: "b/1#4", node: "b", store: "s", why: "busy" },
    { t: 10_700, kind: "exit", id: "b/2#1", status: 0 },
    { t: 60_000, kind: "disturbed" },
    { t: 60_000, kind: "end" },
  ];
}

/** Somebody asks, and does not wait unless told to. */
export function ask(t: number, id: string, node: string, waitMs = 0): Event {
  const rest = { store: "s", via: "socket", waitLease: false } as const;
  return { t, kind: "ask", id, node, waitMs, ...rest };
}

/** A line of the store's log. */
export function written(
  t: number,
  index: number,
  line: { id: string; node: string; epoch: number; seq: number },
): Event {
  return { t, kind: "written", store: "s", index, doneMs: t + 1, ...line };
}

/** The history with some events changed, dropped (null) or added, sorted again. */
export function doctored(change: (event: Event) => Event | Event[] | null): Event[] {
  return goodHistory().flatMap((event) => change(event) ?? []).sort((a, b) => a.t - b.t);
}

/** Changes the event of one kind and id. */
export function alter<K extends Event["kind"]>(
  kind: K,
  id: string,
  change: Partial<EventOf<K>>,
): Event[] {
  let found = 0;
  const history = doctored((event) => {
    if (event.kind !== kind || !("id" in event) || event.id !== id) return event;
    found++;
    return { ...event, ...change } as Event;
  });
  expect(found).toBe(1); // A lie that was not told proves nothing.
  return history;
}

/** Somebody asks, and is refused at once. */
export function refused(
  t: number,
  id: string,
  node: string,
  refusal: Pick<EventOf<"refused">, "why" | "holder">,
): Event[] {
  const via = refusal.why.startsWith("exit ") ? "guard" : "socket";
  return [{ ...ask(t, id, node), via } as Event, {
    t: t + 100,
    kind: "refused",
    id,
    node,
    store: "s",
    ...refusal,
  }];
}

/**
 * An older program `o` takes part and is granted at `t`, in epoch 30; by default while `b` is. At
 * `takenMs` an entry was taken away.
 */
export function withOlder(t: number, takenMs?: number): Event[] {
  return [
    ...goodHistory().map((event): Event =>
      event.kind === "setup" ? { ...event, nodes: ["a", "b", "o"], older: ["o"] } : event
    ),
    ...(takenMs === undefined ? [] : [
      { t: takenMs, kind: "fault", fault: 7, name: "delete entry", targets: [] },
      { t: takenMs, kind: "healed", fault: 7 },
    ] as Event[]),
    { t: t - 5, kind: "tenure", store: "s", node: "o", epoch: 30, closed: false },
    { t, kind: "grant", store: "s", id: "o/1#1", node: "o", epoch: 30, deadlineMs: t + 4_000 },
    { t: t + 50, kind: "release", id: "o/1#1" },
    { t: t + 50, kind: "tenure", store: "s", node: "o", epoch: 30, closed: true },
  ];
}

/** A lie, the rule that it breaks, what is said of it, and the history that tells it. */
export type Lie = [lie: string, rule: Rule, words: RegExp, history: () => Event[]];

/** One for each thing that the checker may say, at least. */
export const LIES: readonly Lie[] = [
  [
    "a second node is granted before the first one's deadline",
    "overlap",
    /b\/1#3 on b was granted while a\/1#2 on a was live/,
    () =>
      doctored((event) => {
        // The loss was never noticed: the first client may write until its deadline.
        if (event.kind === "lost") return null;
        return event.kind === "grant" && event.id === "b/1#3" ? { ...event, t: 5_000 } : event;
      }),
  ],
  [
    "a second client of the same node is granted before the release",
    "overlap",
    /a\/1#2 on a was granted while a\/1#1 on a/,
    () => alter("grant", "a/1#2", { t: 1_390 }),
  ],
  [
    "a guarded command writes on into the next grant",
    "overlap",
    /b\/1#5 on b was granted while b\/2#1/,
    () =>
      [
        ...goodHistory(),
        ask(11_000, "b/1#5", "b"),
        {
          t: 11_010,
          kind: "grant",
          id: "b/1#5",
          node: "b",
          store: "s",
          epoch: 20,
          deadlineMs: 15_000,
        },
        written(11_500, 4, { id: "b/2#1", node: "b", epoch: 20, seq: 2 }),
      ].sort((a, b) => a.t - b.t) as Event[],
  ],
  [
    "an epoch goes back in a log",
    "epoch",
    /epoch 10 of b after epoch 20/,
    () => alter("written", "b/2#1", { epoch: 10 }),
  ],
  [
    "lines of two epochs are swapped in a log",
    "epoch",
    /epoch 10 of a after epoch 20 of b/,
    () =>
      doctored((event) =>
        event.kind === "written" && event.index > 0 && event.index < 3
          ? { ...event, index: 3 - event.index }
          : event
      ),
  ],
  [
    "a line was written without any grant",
    "write",
    /written without a grant/,
    () => doctored((event) => event.kind === "grant" && event.id === "b/1#3" ? null : event),
  ],
  [
    "a line carries another epoch than its grant",
    "write",
    /written with epoch 20 granted/,
    () => alter("written", "b/1#3", { epoch: 21 }),
  ],
  [
    "a line was written after the deadline",
    "write",
    /no longer live/,
    () => alter("written", "a/1#1", { t: 5_010, doneMs: 5_030 }),
  ],
  [
    "a line was written after the release",
    "write",
    /no longer live/,
    () => alter("written", "a/1#1", { t: 1_401, doneMs: 1_402 }),
  ],
  [
    "a write began before the deadline and ended after it",
    "write",
    /no longer live/,
    () =>
      doctored((event) => {
        if (event.kind === "release" && event.id === "b/1#3") return null;
        if ("id" in event && event.id.startsWith("b/2")) return null;
        return event.kind === "written" && event.id === "b/1#3"
          ? { ...event, t: 13_999, doneMs: 14_001 }
          : event;
      }),
  ],
  ["a sequence is there twice", "write", /sequence 1 out of order/, () =>
    [
      ...goodHistory(),
      written(10_601, 4, { id: "b/2#1", node: "b", epoch: 20, seq: 1 }),
    ].sort((a, b) => a.t - b.t) as Event[]],
  [
    "a node is granted without a grace after one that did not let go",
    "grace",
    /granted 3900 ms after a\/1#2 was last proven on a/,
    () => alter("grant", "b/1#3", { t: 5_400 }),
  ],
  [
    "a store is not granted again in time",
    "stuck",
    /not granted within 30000 ms/,
    () => doctored((event) => "id" in event && event.t > 9_000 ? null : event),
  ],
  [
    "a request is never answered",
    "stuck",
    /b\/1#2 on b asked for store s and had no answer/,
    () => doctored((event) => event.kind === "refused" && event.id === "b/1#2" ? null : event),
  ],
  [
    "unavailable is said when nothing is wrong",
    "refusal",
    /unavailable on b, and nothing was wrong/,
    () => [
      ...goodHistory(),
      ask(50_000, "b/1#9", "b"),
      { t: 50_100, kind: "refused", id: "b/1#9", node: "b", store: "s", why: "unavailable" },
    ],
  ],
  [
    "draining is said by a node that nobody stopped",
    "refusal",
    /draining on b, which nobody stopped/,
    () => alter("refused", "b/1#2", { why: "draining" }),
  ],
  ["busy is said where nobody else is", "refusal", /busy on b, and nobody else was there/, () => [
    ...goodHistory(),
    ask(50_000, "b/1#9", "b"),
    { t: 50_100, kind: "refused", id: "b/1#9", node: "b", store: "s", why: "busy" },
  ]],
  [
    "a holder is named that never was",
    "refusal",
    /names c, which never held s/,
    () => alter("refused", "b/1#1", { holder: { node: "c", epoch: null } }),
  ],
  [
    "a holder is named with an epoch that nobody had",
    "refusal",
    /names a with epoch 11, which nobody ever had/,
    () => alter("refused", "b/1#1", { holder: { node: "a", epoch: 11 } }),
  ],
  [
    "a node names itself as the other holder",
    "refusal",
    /not_holder on b, which names itself/,
    () => alter("refused", "b/1#1", { holder: { node: "b", epoch: 20 } }),
  ],
  [
    "a holder is named long after it was displaced",
    "refusal",
    /names a with epoch 10, though b had epoch 20/,
    () => [
      ...goodHistory(),
      ...refused(50_000, "c/1#9", "c", { why: "not_holder", holder: { node: "a", epoch: 10 } }),
    ],
  ],
  [
    "a grant comes before the grace that was named is over",
    "refusal",
    /grace on b for 3000 ms, but b\/1#3 was granted after 2100 ms/,
    () => alter("refused", "b/1#2", { retryAfterMs: 3_000 }),
  ],
  [
    "a grace is longer than it may be",
    "refusal",
    /grace on b with 4001 ms to wait, of at most 4000/,
    () => alter("refused", "b/1#2", { retryAfterMs: 4_001 }),
  ],
  [
    "misconfigured is said and nothing is",
    "refusal",
    /refused with misconfigured, which nothing in this run/,
    () => alter("refused", "b/1#2", { why: "misconfigured" }),
  ],
  [
    "a lease is lost when nothing is wrong",
    "refusal",
    /lost \(unavailable\) on b, and nothing was wrong/,
    () => [
      ...goodHistory(),
      {
        t: 50_000,
        kind: "grant",
        id: "b/1#9",
        node: "b",
        store: "s",
        epoch: 20,
        deadlineMs: 53_900,
      },
      { t: 50_100, kind: "lost", id: "b/1#9", why: "unavailable" },
    ],
  ],
  [
    "a token is not known that was just granted",
    "refusal",
    /a did not know the token/,
    () => doctored((event) => event.kind === "lost" ? { ...event, why: "no_token" } : event),
  ],
  [
    "a tenure goes on after it was lost",
    "refusal",
    /later in the same epoch/,
    () =>
      doctored((event) => {
        if (event.kind === "lost") return { ...event, why: "unavailable" };
        if (event.kind === "grant" && event.epoch === 20) return { ...event, node: "a", epoch: 10 };
        return event.kind === "written" ? { ...event, node: "a", epoch: 10 } : event;
      }),
  ],
  [
    "a line was written with the grant of another store",
    "write",
    /written with a grant for s/,
    () =>
      doctored((event) =>
        event.kind === "written" && event.id === "b/1#3" ? { ...event, store: "z" } : event
      ),
  ],
  [
    "a line was written before its grant",
    "write",
    /written before it was granted/,
    () => alter("written", "b/1#3", { t: 10_050, doneMs: 10_051 }),
  ],
  ...["gone", "exit 69", "exit 79"].map((why): Lie => [
    `${why} is said when nothing is wrong`,
    "refusal",
    new RegExp(`${why} on b, and nothing was wrong`),
    () => [...goodHistory(), ...refused(50_000, "b/1#9", "b", { why })],
  ]),
  [
    "unavailable is said for longer than an aftermath takes",
    "refusal",
    /unavailable on b, and nothing was wrong/,
    // The fault was healed at 3 s.
    () => [...goodHistory(), ...refused(21_200, "b/1#9", "b", { why: "unavailable" })],
  ],
  [
    "not_holder names nobody when nothing is wrong",
    "refusal",
    /not_holder on a, which names nobody/,
    () => [...goodHistory(), ...refused(50_000, "a/1#9", "a", { why: "not_holder" })],
  ],
  [
    "stale_epoch is said where nobody had a newer one",
    "refusal",
    /stale_epoch on b, and nobody else had a newer epoch/,
    () => [...goodHistory(), ...refused(50_000, "b/1#9", "b", { why: "stale_epoch" })],
  ],
  [
    "a grant lasts on while another node takes over, though the last note of it is old",
    "grace",
    /granted \d+ ms after a\/1#2 was last proven on a/,
    // Renewed until just before the fault: the grace counts from there.
    () => [
      ...doctored((event) => event.kind === "grant" && event.id === "b/1#3" ? null : event),
      { t: 1_990, kind: "extended", id: "a/1#2", by: "renewed", deadlineMs: 5_910 },
      { t: 5_890, kind: "grant", store: "s", id: "b/1#3", node: "b", epoch: 20, deadlineMs: 9_800 },
    ],
  ],
  [
    "an older program is granted while an agent is, and no entry was taken away",
    "overlap",
    /o\/1#1 on o was granted while b\/1#3 on b was live/,
    () => withOlder(10_150),
  ],
  [
    "an agent's epoch goes back behind an older program's, and no entry was taken away",
    "epoch",
    /epoch 20 of b after epoch 30 of o/,
    () => [
      ...withOlder(10_150),
      written(10_160, 1.5, { id: "o/1#1", node: "o", epoch: 30, seq: 1 }),
    ],
  ],
  [
    "an older program is granted while an agent is, long after an entry was taken away",
    "overlap",
    /o\/1#1 on o was granted while/,
    () => withOlder(10_150, 1_000),
  ],
  [
    "two agents are granted at once when an entry was taken away beside an older program",
    "overlap",
    /a\/1#2 on a was granted while a\/1#1 on a/,
    () => [...withOlder(20_000, 1_350), ...alter("grant", "a/1#2", { t: 1_390 }).slice(1)],
  ],
  [
    "a store is granted to an older program alone",
    "stuck",
    /not granted within 30000 ms/,
    () => withOlder(9_000).filter((event) => !("id" in event) || event.t <= 9_000),
  ],
  [
    "an older program is named long after others had the store",
    "refusal",
    /names o, which .* ago/,
    () => [
      ...withOlder(10_150, 10_100),
      ...refused(50_000, "a/1#9", "a", { why: "not_holder", holder: { node: "o", epoch: null } }),
      ask(30_000, "b/1#8", "b"),
      {
        t: 30_010,
        kind: "grant",
        store: "s",
        id: "b/1#8",
        node: "b",
        epoch: 20,
        deadlineMs: 33_900,
      },
      { t: 30_100, kind: "release", id: "b/1#8" },
    ],
  ],
];
