/** When an inspection that hangs is made anew, and what is known of the buckets by it. */
import { expect, test } from "bun:test";
import type { Inspection } from "../../src/nats/buckets.ts";
import { Lookout } from "../../src/nats/lookout.ts";
import type { NatsOptions } from "../../src/nats/options.ts";
import type { Session } from "../../src/nats/session.ts";
import { Recorder } from "../support/recorder.ts";
import { plainTimers } from "../support/plain_clock.ts";
import { Pause } from "../../src/nats/pause.ts";

/** `made`: when the buckets were made that this host remembers. */
function setUp(made: string | null = null) {
  let nowMs = 0;
  const clock = { bootMs: () => nowMs, wallMs: () => nowMs };
  const remembered: string[] = [];
  const memory = {
    madeOf: () => made,
    rememberMade: (_bucket: string, text: string) => void remembered.push(text),
  } as unknown as NatsOptions["memory"];
  const options = { clock, timers: plainTimers, bucket: "leases", memory };
  const identity = { urls: ["nats://x"], node: "a", incarnation: "i", address: null };
  let answered = 0;
  const told = new Recorder();
  const lookout = new Lookout({ ...options, ...identity }, told, {
    pause: new Pause(options, 1_000),
    onAnswered: () => answered++,
  });
  const hanging = Promise.withResolvers<Inspection>();
  const session = { inspect: () => hanging.promise } as unknown as Session;
  const look = lookout.inspect(session, undefined);
  let result: Inspection | null | undefined;
  void look.then((value) => (result = value));
  return {
    lookout,
    remembered,
    hanging,
    told,
    session,
    answered: () => answered,
    /** What the look came to by now; undefined: it goes on. */
    result: async () => (await Promise.resolve(), await Promise.resolve(), result),
    after: (ms: number) => void (nowMs += ms),
  };
}

test("inspect() is made anew when requests are answered again that were not", async () => {
  const { lookout, result, after, answered } = setUp();
  after(1_500);
  lookout.onTrouble();
  lookout.onAnswer("$KV.leases.one", false); // an error is no answer
  expect(await result()).toBeUndefined();
  lookout.onAnswer("$KV.leases.one", true);
  expect(await result()).toBeNull();
  expect(answered()).toBe(1);
});

test("inspect() goes on while nothing tells that its question was lost", async () => {
  const { lookout, result, after, hanging } = setUp();
  after(1_500);
  lookout.onAnswer("$KV.leases.one", true); // as all before it
  expect(await result()).toBeUndefined();
  const inspection = { ttlMs: 1 } as Inspection;
  hanging.resolve(inspection);
  expect(await result()).toBe(inspection);
});

test("inspect() is given the time that an answer takes", async () => {
  const { lookout, result, after } = setUp();
  after(500);
  lookout.onTrouble();
  lookout.onAnswer("$KV.leases.one", true);
  expect(await result()).toBeUndefined();
});

test("recognise() does not take buckets for known that were looked at before one was deleted", () => {
  const { lookout, told, session } = setUp();
  const of = (leasesCreated: string) => ({ leasesCreated, tenuresCreated: "then" }) as Inspection;
  lookout.recognise(of("then"));
  lookout.onDeleted();
  lookout.recognise(of("then"));
  void lookout.inspect(session, undefined);
  lookout.recognise(of("now"));
  lookout.recognise(of("now"));
  expect(told.buckets).toEqual(["known", "unseen", "unseen", "others", "known"]);
});

test("recognise() tells a loss from a host that has forgotten which buckets it used", () => {
  for (const [made, seen] of [["", "forgotten"], ["then then", "others"], ["now then", "known"]]) {
    const { lookout, told } = setUp(made);
    lookout.recognise({ leasesCreated: "now", tenuresCreated: "then" } as Inspection);
    expect(told.buckets).toEqual([seen as "known"]);
  }
});

test("recognise() remembers the TTL that was gone by, and tells it when the buckets are lost", () => {
  const now = { leasesCreated: "now", tenuresCreated: "then", ttlMs: 5_000 } as Inspection;
  const same = setUp("now then 40000");
  same.lookout.recognise(now, 15_000);
  expect([same.told.buckets, same.told.ttlsBefore]).toEqual([["known"], []]);
  expect(same.remembered).toEqual(["now then 15000"]);
  const lost = setUp("before then 40000");
  lost.lookout.recognise(now);
  expect([lost.told.buckets, lost.told.ttlsBefore]).toEqual([["others"], [40_000]]);
  // An agent that is started again before what is owed is over has to owe it, too.
  expect(lost.remembered).toEqual([]);
  // …as long as the TTL of before says, which is the longer one here.
  lost.after(79_000);
  lost.lookout.recognise(now);
  expect(lost.remembered).toEqual([]);
  lost.after(1_000);
  lost.lookout.recognise(now);
  expect(lost.remembered).toEqual(["now then 5000"]);
});
