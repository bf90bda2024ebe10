/**
 * Histories with lies that hide behind something true: an exemption, a fault elsewhere, a calm that was
 * cut short, a line that is not there. And such as look like them, and are true.
 * @module
 */
import type { Event, Setup } from "./history.ts";
import {
  alter,
  ask,
  doctored,
  goodHistory,
  type Lie,
  refused,
  withOlder,
  written,
} from "./lies.ts";

/** With more events, by time. */
export function plus(history: readonly Event[], ...more: readonly Event[]): Event[] {
  return [...history, ...more].sort((a, b) => a.t - b.t);
}

/** A run in which something was set up otherwise. */
export function setUp(history: readonly Event[], change: Partial<Setup>): Event[] {
  return history.map((event) => event.kind === "setup" ? { ...event, ...change } : event);
}

/** A fault that was there in that time. */
export function fault(
  name: string,
  targets: readonly string[],
  [t, healedMs]: readonly [number, number],
  detail?: string,
): Event[] {
  return [
    { t, kind: "fault", fault: 9, name, targets, detail },
    { t: healedMs, kind: "healed", fault: 9 },
  ];
}

/** A grant from its question to its release. */
export function granted(
  [t, releasedMs]: readonly [number, number],
  id: string,
  [node, epoch]: readonly [string, number],
): Event[] {
  return [
    ask(t - 5, id, node),
    { t, kind: "grant", id, node, store: "s", epoch, deadlineMs: t + 3_918 },
    { t: releasedMs, kind: "release", id },
  ];
}

/** A tenure record. */
export function tenure(
  t: number,
  [node, epoch]: readonly [string, number],
  closed: boolean,
): Event {
  return { t, kind: "tenure", store: "s", node, epoch, closed };
}

/** Node b is granted once more, while a's tenure is not yet a grace old; an older program was in between. */
const EARLY = granted([5_350, 5_400], "b/1#0", ["b", 20]);

const SERVERS = ["s1", "s2", "s3"];

/** Each was overlooked by an earlier checker. */
export const HIDDEN_LIES: readonly Lie[] = [
  [
    "two agents are granted at once under an older program's grant, which is exempt",
    "overlap",
    /a\/1#9 on a was granted while b\/1#3 on b was live/,
    () =>
      plus(
        withOlder(10_050, 10_000).filter((event) =>
          event.kind !== "release" || event.id !== "o/1#1"
        ),
        { t: 12_000, kind: "release", id: "o/1#1" },
        ...granted([10_150, 10_160], "a/1#9", ["a", 10]),
        tenure(10_140, ["b", 20], true),
        tenure(10_145, ["a", 10], true),
      ),
  ],
  [
    "a grace is cut short after an older program's grant, which is exempt",
    "grace",
    /b\/1#0 on b was granted 3850 ms after a\/1#2 was last proven on a/,
    () => plus(withOlder(5_290, 5_200), ...EARLY),
  ],
  [
    "a tenure is closed when the next one has begun",
    "grace",
    /b\/1#0 on b was granted 3850 ms after a\/1#2 was last proven on a/,
    () =>
      plus(
        goodHistory(),
        tenure(5_340, ["b", 20], false),
        ...EARLY,
        tenure(12_000, ["a", 10], true),
      ),
  ],
  [
    "an agent's epoch goes back behind an older program's line, which is exempt",
    "epoch",
    /epoch 10 of a after epoch 20 of b/,
    () =>
      plus(
        withOlder(10_310, 10_250).map((event) =>
          "node" in event && event.node === "o" && "epoch" in event ? { ...event, epoch: 5 } : event
        ),
        written(10_320, 2.5, { id: "o/1#1", node: "o", epoch: 5, seq: 1 }),
        written(1_750, 2.7, { id: "a/1#2", node: "a", epoch: 10, seq: 2 }),
      ),
  ],
  [
    "nothing is granted in a whole run, whose calms are all cut short",
    "stuck",
    /store s was not granted within 6000 ms after all was healed/,
    () =>
      plus(
        doctored((event) => "id" in event && event.t > 3_000 ? null : event),
        { t: 9_000, kind: "disturbed" },
      ),
  ],
  [
    "there is no calm",
    "history",
    /no calm/,
    () => doctored((event) => event.kind === "calm" ? null : event),
  ],
  [
    "a history breaks off",
    "history",
    /breaks off/,
    () => doctored((event) => event.kind === "end" ? null : event),
  ],
  [
    "a request is not answered shortly before the end",
    "stuck",
    /b\/1#9 on b asked for store s and had no answer/,
    () => plus(goodHistory(), ask(59_000, "b/1#9", "b")),
  ],
  [
    "the first line of a grant is missing",
    "write",
    /sequence 2 after 0: a line is missing/,
    () => alter("written", "b/1#3", { seq: 2 }),
  ],
  [
    "a line is missing within a grant",
    "write",
    /sequence 3 after 1: a line is missing/,
    () => plus(goodHistory(), written(1_750, 1.5, { id: "a/1#2", node: "a", epoch: 10, seq: 3 })),
  ],
  [
    "the last line of a client is missing",
    "write",
    /b\/1#3 wrote line 2, which is not in the log/,
    () => plus(goodHistory(), { t: 10_250, kind: "wrote", id: "b/1#3", seq: 2 }),
  ],
  [
    "the last line of a command is missing",
    "write",
    /b\/2#1 wrote 2 lines, and 1 are in the log/,
    () => alter("ask", "b/2#1", { via: "guard", writes: 2 }),
  ],
  [
    "a grant's deadline is later than a proof allows",
    "deadline",
    /b\/1#3 on b was told a deadline 10 ms later/,
    () => alter("grant", "b/1#3", { deadlineMs: 10_100 + 3_920 + 10 }),
  ],
  [
    "a verify's deadline is later than a proof allows",
    "deadline",
    /a\/1#1 on a was told a deadline 80 ms later/,
    () => alter("extended", "a/1#1", { deadlineMs: 5_100 }),
  ],
  [
    "an older program's deadline is later than a TTL",
    "deadline",
    /o\/1#1 on o was told a deadline 5 ms later/,
    () =>
      withOlder(10_310, 10_250).map((event) =>
        event.kind === "grant" && event.node === "o" ? { ...event, deadlineMs: 14_315 } : event
      ).sort((a, b) => a.t - b.t),
  ],
  [
    "busy is said when the other one has long let go",
    "refusal",
    /busy on b, and nobody else was there/,
    () =>
      plus(
        goodHistory(),
        ...granted([40_000, 40_100], "b/1#8", ["b", 20]),
        ...refused(43_000, "b/1#9", "b", { why: "busy" }),
      ),
  ],
  [
    "busy is said at the end of a wait in whose beginning the other one let go",
    "refusal",
    /busy on b, and nobody else was there/,
    () =>
      plus(
        goodHistory(),
        ...granted([40_000, 40_100], "b/1#8", ["b", 20]),
        ask(40_050, "b/1#9", "b", 5_000),
        { t: 45_060, kind: "refused", id: "b/1#9", node: "b", store: "s", why: "busy" },
      ),
  ],
  [
    "busy is said where an older program is, which takes no lock",
    "refusal",
    /busy on b, and nobody else was there/,
    () =>
      setUp(plus(withOlder(40_000), ...refused(40_010, "b/1#9", "b", { why: "busy" })), {
        locks: "shared",
      }),
  ],
  [
    "unavailable is said where another agent was cut off",
    "refusal",
    /unavailable on b, and nothing was wrong/,
    () =>
      plus(
        goodHistory(),
        ...fault("cut agent off", ["a", ...SERVERS], [40_000, 41_000]),
        ...refused(40_500, "b/1#9", "b", { why: "unavailable" }),
      ),
  ],
  ...[
    ["step agent's clock", ["b"]],
    ["step down", ["b"]],
    ["kill writers", ["b"]],
    ["delete entry", SERVERS],
  ].map(([name, targets]): Lie => [
    `unavailable is said after "${name}", which makes nothing so`,
    "refusal",
    /unavailable on b, and nothing was wrong/,
    () =>
      plus(
        goodHistory(),
        ...fault(name as string, targets as string[], [40_000, 40_000], "s"),
        ...refused(40_500, "b/1#9", "b", { why: "unavailable" }),
      ),
  ]),
  [
    "an agent is gone when the servers were",
    "refusal",
    /gone on b, and nothing was wrong/,
    () =>
      plus(
        goodHistory(),
        ...fault("all servers down", SERVERS, [40_000, 41_000]),
        ...refused(40_500, "b/1#9", "b", { why: "gone" }),
      ),
  ],
  [
    "a connection is closed when the servers were down",
    "refusal",
    /lost \(closed\) on b, and nothing was wrong/,
    () =>
      plus(
        goodHistory(),
        ...fault("all servers down", SERVERS, [40_000, 41_000]),
        ...granted([40_000, 40_200], "b/1#8", ["b", 20]).slice(0, 2),
        { t: 40_500, kind: "lost", id: "b/1#8", why: "closed" },
      ),
  ],
  [
    "a lease is lost when another store's entry was deleted",
    "refusal",
    /lost \(not_holder\) on b, and nothing was wrong/,
    () =>
      plus(
        goodHistory(),
        ...fault("delete entry", SERVERS, [40_000, 40_000], "z"),
        ...granted([40_000, 40_200], "b/1#8", ["b", 20]).slice(0, 2),
        { t: 40_500, kind: "lost", id: "b/1#8", why: "not_holder" },
      ),
  ],
  [
    "a node names itself when another store's entry was overwritten",
    "refusal",
    /not_holder on b, which names itself/,
    () =>
      plus(
        goodHistory(),
        ...fault("overwrite entry", SERVERS, [40_000, 40_000], "z by c"),
        ...refused(40_500, "b/1#9", "b", { why: "not_holder", holder: { node: "b", epoch: null } }),
      ),
  ],
  [
    "an agent is draining long after it stepped down",
    "refusal",
    /draining on b, which nobody stopped/,
    () =>
      plus(
        goodHistory(),
        ...fault("step down", ["b"], [40_000, 40_000]),
        ...refused(49_500, "b/1#9", "b", { why: "draining" }),
      ),
  ],
  [
    "a holder is named that let go, and nobody came after it",
    "refusal",
    /names b with epoch 20, which it had given up 9100 ms before/,
    () =>
      plus(
        goodHistory(),
        tenure(41_000, ["b", 20], true),
        ...refused(50_000, "a/1#9", "a", { why: "not_holder", holder: { node: "b", epoch: 20 } }),
      ),
  ],
  [
    "grace is said when nobody was displaced",
    "refusal",
    /grace on b, and nobody was displaced/,
    () =>
      plus(
        goodHistory(),
        ask(50_000, "b/1#9", "b"),
        {
          t: 50_010,
          kind: "refused",
          id: "b/1#9",
          node: "b",
          store: "s",
          why: "grace",
          retryAfterMs: 2_000,
        },
      ),
  ],
  [
    "agent guard is refused on the node that holds the store, with nobody in front",
    "refusal",
    /exit 75 on b, and nobody else was there/,
    () => plus(goodHistory(), ...refused(50_000, "b/2#9", "b", { why: "exit 75" })),
  ],
  [
    "stale_epoch is said by a node that had no lease",
    "refusal",
    /stale_epoch on b, and nobody else had a newer epoch/,
    () => alter("refused", "b/1#2", { why: "stale_epoch" }),
  ],
  [
    "stale_epoch is said when another node had a lower epoch",
    "refusal",
    /stale_epoch on b, and nobody else had a newer epoch/,
    () =>
      setUp(
        plus(
          goodHistory(),
          ...granted([40_000, 40_100], "a/1#8", ["a", 10]),
          ...refused(41_000, "b/1#9", "b", { why: "stale_epoch" }),
        ),
        { locks: "shared" },
      ),
  ],
];

/** What looks like a lie and is none. */
export const TRUTHS: readonly [truth: string, history: () => Event[]][] = [
  [
    "stale_epoch is said by a displaced node that has the same lock files",
    () =>
      setUp(plus(goodHistory(), ...refused(41_000, "a/1#9", "a", { why: "stale_epoch" })), {
        locks: "shared",
      }),
  ],
  [
    "unavailable is said by an agent that is cut off, and for a while after it",
    () =>
      plus(
        goodHistory(),
        ...fault("cut agent off", ["a", ...SERVERS], [30_000, 31_000]),
        ...refused(30_500, "a/1#8", "a", { why: "unavailable" }),
        ...refused(48_000, "a/1#9", "a", { why: "unavailable" }),
      ),
  ],
  [
    "unavailable is said by everybody when servers are down",
    () =>
      plus(
        goodHistory(),
        ...fault("kill leader", ["s1"], [40_000, 41_000]),
        ...refused(40_500, "a/1#9", "a", { why: "unavailable" }),
        ...refused(40_500, "b/1#9", "b", { why: "unavailable" }),
      ),
  ],
  [
    "busy is said for as long as somebody else waits or holds",
    () =>
      plus(
        goodHistory(),
        ...granted([40_000, 42_000], "b/1#7", ["b", 20]),
        ask(41_000, "b/1#8", "b", 3_000),
        ask(41_500, "b/1#9", "b", 3_000),
        // One let go, and the other one in front got its turn.
        {
          t: 42_010,
          kind: "grant",
          id: "b/1#8",
          node: "b",
          store: "s",
          epoch: 20,
          deadlineMs: 45_900,
        },
        { t: 44_490, kind: "refused", id: "b/1#9", node: "b", store: "s", why: "busy" },
        { t: 44_600, kind: "release", id: "b/1#8" },
      ),
  ],
  [
    "a grace is owed to an older program, which leaves no record",
    () =>
      plus(
        withOlder(40_000),
        ask(42_000, "b/1#9", "b"),
        {
          t: 42_010,
          kind: "refused",
          id: "b/1#9",
          node: "b",
          store: "s",
          why: "grace",
          retryAfterMs: 2_000,
        },
      ),
  ],
  [
    "a grace is owed to an older program that was killed, long after it was granted",
    () =>
      plus(
        withOlder(40_000).filter(({ t }) => t !== 40_050),
        { t: 43_900, kind: "extended", id: "o/1#1", by: "renewed", deadlineMs: 47_900 },
        ...fault("kill older program", ["o"], [44_000, 44_100]),
        { t: 44_000, kind: "gone", prefix: "o/1" },
        ask(55_000, "b/1#9", "b"),
        {
          t: 55_010,
          kind: "refused",
          id: "b/1#9",
          node: "b",
          store: "s",
          why: "grace",
          retryAfterMs: 2_000,
        },
      ),
  ],
  [
    "an older program is granted after a tenure that was closed, which is noted later",
    () => plus(withOlder(10_800), tenure(10_850, ["b", 20], true)),
  ],
  [
    "agent guard is refused where another node holds the store",
    () => plus(goodHistory(), ...refused(50_000, "a/2#9", "a", { why: "exit 75" })),
  ],
  [
    "a lease is lost when its entry was deleted",
    () =>
      plus(
        goodHistory(),
        ...fault("delete entry", SERVERS, [40_000, 40_000], "s"),
        ...granted([40_000, 40_200], "b/1#8", ["b", 20]).slice(0, 2),
        { t: 40_500, kind: "lost", id: "b/1#8", why: "not_holder" },
      ),
  ],
  [
    "an older program is granted beside an agent when an entry was taken away",
    () => withOlder(10_150, 10_100).sort((a, b) => a.t - b.t),
  ],
];
