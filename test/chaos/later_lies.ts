/**
 * Histories with lies about when: answers that come late, tenures in the wrong order, verifies of grants
 * that are over. And such as look like them, and are true.
 * @module
 */
import { fault, granted, plus, setUp, tenure } from "./hidden_lies.ts";
import type { Event, EventOf } from "./history.ts";
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

/** Somebody asks, and is answered so much later. */
function answered(
  [t, tookMs]: readonly [number, number],
  id: string,
  answer: Pick<EventOf<"refused">, "why" | "holder" | "retryAfterMs">,
  asked: Partial<EventOf<"ask">> = {},
): Event[] {
  const node = id.slice(0, 1);
  return [
    { ...ask(t, id, node), ...asked } as Event,
    { t: t + tookMs, kind: "refused", id, node, store: "s", ...answer },
  ];
}

/** A servers' outage that excuses refusals on every node. */
const OUTAGE = fault("all servers down", ["s1", "s2", "s3"], [30_000, 50_000]);

/** A tenure of node a in epoch 30, which b's was displaced by. */
const DISPLACED = [
  tenure(29_000, ["a", 30], false),
  ...granted([30_000, 30_100], "a/1#8", ["a", 30]),
];

/** Each was overlooked by an earlier checker. */
export const LATER_LIES: readonly Lie[] = [
  [
    "unavailable comes 12 s after the wait",
    "answer",
    /b\/1#9 on b was told unavailable 12000 ms after its wait/,
    () =>
      plus(
        goodHistory(),
        ...OUTAGE,
        ...answered([35_000, 12_000], "b/1#9", { why: "unavailable" }),
      ),
  ],
  [
    "unavailable comes at the end of a long wait, though there was nothing to wait for",
    "answer",
    /b\/1#9 on b was told unavailable 12000 ms after its wait/,
    () =>
      plus(
        goodHistory(),
        ...OUTAGE,
        ...answered([35_000, 12_000], "b/1#9", { why: "unavailable" }, { waitMs: 12_000 }),
      ),
  ],
  [
    "unavailable comes late to one who waits for the lease",
    "answer",
    /b\/1#9 on b was told unavailable 9000 ms after its wait/,
    () =>
      plus(
        goodHistory(),
        ...OUTAGE,
        ...answered([35_000, 12_000], "b/1#9", { why: "unavailable" }, {
          waitMs: 3_000,
          waitLease: true,
        }),
      ),
  ],
  [
    "busy comes 40 s late",
    "answer",
    /b\/1#9 on b was told busy 40000 ms after its wait/,
    () =>
      plus(
        goodHistory(),
        ...granted([11_000, 12_000], "b/1#8", ["b", 20]),
        ...answered([11_500, 40_000], "b/1#9", { why: "busy" }),
      ),
  ],
  [
    "a grant comes 40 s after its wait",
    "answer",
    /b\/1#9 on b was granted 39000 ms after its wait/,
    () =>
      plus(
        goodHistory(),
        ask(11_000, "b/1#9", "b", 1_000),
        ...granted([51_000, 51_100], "b/1#9", ["b", 20]).slice(1),
      ),
  ],
  [
    "an answer is late by more than its agent was frozen",
    "answer",
    /b\/1#9 on b was told unavailable 9000 ms after its wait/,
    () =>
      plus(
        goodHistory(),
        ...fault("freeze agent", ["b"], [30_000, 33_000]),
        ...answered([30_000, 12_000], "b/1#9", { why: "unavailable" }),
      ),
  ],
  [
    "busy comes before the wait is over",
    "answer",
    /b\/1#9 on b was told busy 4990 ms before its wait was over/,
    () =>
      plus(
        goodHistory(),
        ...granted([40_000, 42_000], "b/1#8", ["b", 20]),
        ...answered([40_500, 10], "b/1#9", { why: "busy" }, { waitMs: 5_000 }),
      ),
  ],
  [
    "not_holder comes at once to one who waits for the lease",
    "answer",
    /a\/1#9 on a was told not_holder 4990 ms before its wait was over/,
    () =>
      plus(
        goodHistory(),
        ...answered(
          [50_000, 10],
          "a/1#9",
          { why: "not_holder", holder: { node: "b", epoch: 20 } },
          {
            waitMs: 5_000,
            waitLease: true,
          },
        ),
      ),
  ],
  [
    "grace comes at once to one who would wait for its end",
    "answer",
    /b\/1#2 on b was told grace 2990 ms before its wait was over/,
    () => alter("ask", "b/1#2", { waitMs: 3_000 }),
  ],
  [
    "a verify is answered with ok after the grant was lost",
    "verify",
    /a\/1#2 on a had a verify 490 ms after its end/,
    () =>
      plus(goodHistory(), {
        t: 2_500,
        kind: "extended",
        id: "a/1#2",
        by: "verify",
        deadlineMs: 6_400,
      }),
  ],
  [
    "a verify is answered with ok after the release",
    "verify",
    /b\/1#3 on b was released, and a verify answered with ok/,
    () =>
      plus(goodHistory(), {
        t: 10_310,
        kind: "afterwards",
        id: "b/1#3",
        released: true,
        answer: "ok",
      }),
  ],
  [
    "a verify is answered with ok after the agent had said that the grant is lost",
    "verify",
    /b\/1#8 on b was lost \(not_holder\), and a verify answered with ok/,
    () =>
      plus(
        goodHistory(),
        ...fault("delete entry", ["s1"], [40_000, 40_000], "s"),
        ...granted([40_000, 40_200], "b/1#8", ["b", 20]).slice(0, 2),
        { t: 40_500, kind: "lost", id: "b/1#8", why: "not_holder" },
        { t: 40_510, kind: "afterwards", id: "b/1#8", released: false, answer: "ok" },
      ),
  ],
  [
    "a verify's proof is older than its question",
    "deadline",
    /a\/1#1 on a was told a deadline \d+ ms too early/,
    () => alter("extended", "a/1#1", { deadlineMs: 4_900 }),
  ],
  [
    "a grant's proof is older than its question",
    "deadline",
    /b\/1#3 on b was told a deadline 100 ms too early/,
    () => alter("grant", "b/1#3", { deadlineMs: 9_000 + 3_920 - 100 }),
  ],
  [
    "a tenure has no record",
    "tenure",
    /b\/1#3 on b was granted in a tenure without a record/,
    () => doctored((event) => event.kind === "tenure" && event.node === "b" ? null : event),
  ],
  [
    "a tenure is recorded after its first grant",
    "tenure",
    /b\/1#3 on b was granted 4900 ms before its tenure was recorded/,
    () =>
      doctored((event) =>
        event.kind === "tenure" && event.node === "b" ? { ...event, t: 15_000 } : event
      ),
  ],
  [
    "a store is granted in a tenure that was closed",
    "tenure",
    /b\/1#8 on b was granted in a tenure that had been closed for 4995 ms/,
    () =>
      plus(
        goodHistory(),
        tenure(45_000, ["b", 20], true),
        ...granted([50_000, 50_100], "b/1#8", ["b", 20]),
      ),
  ],
  [
    "two nodes have the same epoch, lines included",
    "epoch",
    /store s: b had epoch 10, which was a's/,
    () =>
      doctored((event) => "epoch" in event && event.epoch === 20 ? { ...event, epoch: 10 } : event),
  ],
  [
    "an older program has the epoch of an agent, and no entry was taken away",
    "epoch",
    /store s: o had epoch 20, which was b's/,
    () =>
      withOlder(40_000).map((event): Event =>
        "epoch" in event && event.node === "o" ? { ...event, epoch: 20 } : event
      ),
  ],
  [
    "a tenure revives after another one, without a line",
    "epoch",
    /b\/1#9 was granted on b in epoch 20, after epoch 30 of a/,
    () => plus(goodHistory(), ...DISPLACED, ...granted([40_000, 40_100], "b/1#9", ["b", 20])),
  ],
  [
    "a tenure revives after another one was recorded, which granted nothing",
    "tenure",
    /b\/1#9 on b was granted in epoch 20, 10995 ms after a had epoch 30/,
    () =>
      plus(
        goodHistory(),
        tenure(29_000, ["a", 30], false),
        ...granted([40_000, 40_100], "b/1#9", ["b", 20]),
      ),
  ],
  [
    "a tenure revives after another one, and writes",
    "epoch",
    /b\/1#9 was granted on b in epoch 20, after epoch 30 of a/,
    () =>
      plus(
        goodHistory(),
        ...DISPLACED,
        ...granted([40_000, 40_100], "b/1#9", ["b", 20]),
        written(40_050, 4, { id: "b/1#9", node: "b", epoch: 20, seq: 1 }),
      ),
  ],
  [
    "a tenure's epoch is lower than the last one's",
    "epoch",
    /a tenure was recorded on a in epoch 15, after epoch 20 of b/,
    () => plus(goodHistory(), tenure(20_000, ["a", 15], false)),
  ],
  [
    "a holder is named that comes to be only later",
    "refusal",
    /names b with epoch 20, which it had only 3010 ms later/,
    () =>
      plus(
        goodHistory(),
        ...refused(4_910, "a/1#9", "a", { why: "not_holder", holder: { node: "b", epoch: 20 } }),
      ),
  ],
  [
    "a holder is named without an epoch that comes to be only later",
    "refusal",
    /names a, which held s only later/,
    () =>
      plus(
        goodHistory(),
        tenure(55_000, ["a", 30], false),
        ...refused(45_000, "b/1#9", "b", { why: "not_holder", holder: { node: "a", epoch: null } }),
      ).filter((event) =>
        !("node" in event && event.node === "a" && "epoch" in event && event.epoch === 10)
      ),
  ],
  [
    "a holder is named before its predecessor was over, in an outage",
    "refusal",
    /names a with epoch 30, before the one of b\/1#8 was over, 20/,
    () =>
      plus(
        goodHistory(),
        ...OUTAGE,
        ...refused(40_000, "a/1#9", "a", { why: "not_holder", holder: { node: "a", epoch: 30 } }),
        ...granted([40_200, 40_300], "b/1#8", ["b", 20]),
        tenure(45_000, ["a", 30], false),
      ).map((event): Event =>
        "id" in event && event.id === "a/1#9"
          ? { ...event, id: "c/1#9", node: "c" } as Event
          : event
      ),
  ],
  [
    "a request is refused after it was granted",
    "history",
    /a\/1#2 was granted, and refused with unavailable/,
    () =>
      plus(goodHistory(), {
        t: 1_750,
        kind: "refused",
        id: "a/1#2",
        node: "a",
        store: "s",
        why: "unavailable",
      }),
  ],
  [
    "a request is granted twice",
    "history",
    /a\/1#1 has more than one grant/,
    () => plus(goodHistory(), ...granted([1_350, 1_360], "a/1#1", ["a", 10]).slice(1, 2)),
  ],
  [
    "a request is granted on another node than it asked",
    "history",
    /a\/1#1 has a grant of another node/,
    () => alter("grant", "a/1#1", { node: "b" }),
  ],
  [
    "a request is granted that nobody made",
    "history",
    /b\/1#9 was never asked for/,
    () => plus(goodHistory(), ...granted([40_000, 40_100], "b/1#9", ["b", 20]).slice(1)),
  ],
  [
    "a grant is told of after the end",
    "history",
    /a release after the end/,
    () => plus(goodHistory(), ...granted([40_000, 61_000], "b/1#9", ["b", 20])),
  ],
  [
    "a line carries another node than its grant",
    "write",
    /written with a grant on a/,
    () => alter("written", "a/1#1", { node: "b" }),
  ],
  ...([["there twice", 2], ["left out", 9]] as const).map(([what, index]): Lie => [
    `the number of a line is ${what}`,
    "write",
    new RegExp(`line ${index} where line 3 should be`),
    () => alter("written", "b/2#1", { index }),
  ]),
  [
    "the order of a log is not that of time",
    "write",
    /was done before it, or an earlier one, was begun/,
    () =>
      doctored((event) =>
        event.kind === "written" && event.index < 2 ? { ...event, index: 1 - event.index } : event
      ),
  ],
  [
    "a command writes on after it has ended",
    "write",
    /written after its command had ended/,
    () => alter("written", "b/2#1", { t: 10_750, doneMs: 10_751 }),
  ],
  [
    "a command runs on over the grants of others",
    "overlap",
    /b\/1#8 on b was granted while b\/2#1 on b was live/,
    () =>
      plus(alter("exit", "b/2#1", { t: 30_000 }), ...granted([20_000, 20_100], "b/1#8", ["b", 20])),
  ],
  [
    "a node is granted that does not take part",
    "history",
    /grant of node x, which this run does not have/,
    () => plus(goodHistory(), ...granted([50_000, 50_100], "x/1#1", ["x", 30])),
  ],
  [
    "a store is granted that is none of the run",
    "history",
    /grant of store z, which this run does not have/,
    () => alter("grant", "a/1#1", { store: "z" }),
  ],
  [
    "a fault is never healed",
    "history",
    /fault 1, kill agent, was never healed/,
    () => doctored((event) => event.kind === "healed" ? null : event),
  ],
];

/** What looks like a lie and is none. */
export const LATER_TRUTHS: readonly [truth: string, history: () => Event[]][] = [
  [
    "an agent that was frozen answers when it wakes",
    () =>
      plus(
        goodHistory(),
        ...fault("freeze agent", ["b"], [30_000, 40_000]),
        ...answered([30_500, 11_000], "b/1#9", { why: "unavailable" }),
      ),
  ],
  [
    "a guard that waits for its turn hears of an outage when it comes",
    () =>
      plus(
        goodHistory(),
        ...OUTAGE,
        ...answered([26_000, 5_500], "b/1#9", { why: "unavailable" }, { waitMs: 10_000 }),
      ),
  ],
  [
    "a tenure's record is seen only after an outage of the servers",
    () =>
      plus(
        goodHistory(),
        ...fault("all servers down", ["s1", "s2", "s3"], [30_500, 45_000]),
        tenure(29_900, ["b", 20], true),
        ...granted([30_000, 30_100], "a/1#8", ["a", 30]),
        tenure(47_000, ["a", 30], false),
      ),
  ],
  [
    "a record is lost with the power of servers that sync late",
    () =>
      setUp(
        plus(
          goodHistory(),
          tenure(29_900, ["b", 20], true),
          ...granted([30_000, 30_100], "a/1#8", ["a", 30]),
          ...fault("power failure of the leader", ["s1"], [30_200, 31_000]),
        ),
        { sync: "default" },
      ),
  ],
  [
    "a client that gave up by itself hears that its lease goes on",
    () =>
      plus(
        goodHistory(),
        ...OUTAGE,
        ...granted([40_000, 40_100], "b/1#8", ["b", 20]).slice(0, 2),
        { t: 42_000, kind: "lost", id: "b/1#8", why: "unverified" },
        { t: 42_010, kind: "afterwards", id: "b/1#8", released: false, answer: "ok" },
        { t: 42_020, kind: "afterwards", id: "b/1#8", released: true, answer: "no_token" },
      ),
  ],
  [
    "a command whose wrapper was killed runs on after the clients' end, for as long as its lease",
    () =>
      plus(
        goodHistory(),
        { ...ask(59_900, "b/2#2", "b"), via: "guard", writes: 9 } as Event,
        { t: 59_990, kind: "exit", id: "b/2#2", status: 137 },
        { ...granted([60_010, 0], "b/2#2", ["b", 20])[1], deadlineMs: null } as Event,
        written(60_020, 4, { id: "b/2#2", node: "b", epoch: 20, seq: 1 }),
        tenure(60_500, ["b", 20], true),
      ),
  ],
];
