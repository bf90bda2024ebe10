/** How orders to give stores up follow each other, and when they are over. */
import { expect, test } from "bun:test";
import { Drains } from "../../src/agent/drain.ts";
import { newSlot } from "../../src/agent/slot.ts";
import { StepDowns } from "../../src/agent/stepdowns.ts";
import { Harness } from "../lease/harness.ts";
import { FakeTime } from "../support/fake_time.ts";

test("begin() has the time of a later order begin when its own grants had theirs, not the earlier one's", () => {
  const [time, h] = [new FakeTime(), new Harness()];
  h.acquire(50);
  h.grant(51);
  const slot = newSlot(h.store, null);
  const stores = {
    slots: new Map([[h.store.code, slot]]),
    slot: () => slot,
    dispatch: (_: unknown, event: Parameters<Harness["handle"]>[0]) => {
      h.nowMs = time.bootMs();
      h.handle(event);
    },
  };
  const drains = new Drains(stores, { clock: time, timers: time }, 2_000);
  const stepDown = (reason: string) => drains.begin(null, { reason, forMs: 60_000 }, () => {});
  stepDown("first");
  time.after(1_000, () => stepDown("second"));
  time.step();
  time.step(); // the first one's time is up
  expect(h.store.drained(time.bootMs())).toMatchObject({ reason: "second", untilMs: Infinity });
  time.step();
  const untilMs = time.bootMs() + 60_000;
  expect(h.store.drained(time.bootMs())).toMatchObject({ reason: "second", untilMs });
});

test("all tells a time, to the second, at which the step-down is over", () => {
  const time = new FakeTime();
  const stepDowns = new StepDowns(new Map(), time);
  stepDowns.ofEverything({ reason: "stepdown", forMs: 1_500 });
  expect(Date.parse(stepDowns.all!.until)).toBe(time.wallMs() + 2_000);
});

test("ofEverything() concerns a store, too, that had an order of its own before and is not known any more", () => {
  const stepDowns = new StepDowns(new Map(), new FakeTime());
  stepDowns.ofOne("one");
  const standing = stepDowns.ofEverything({ reason: "stepdown", forMs: 60_000 });
  expect(stepDowns.ofNewcomer("one")).toBe(standing);
});
