import { expect, test } from "bun:test";
import { Asking, type AskingParts } from "../../src/agent/asking.ts";
import { FakeTime } from "../support/fake_time.ts";

test("one() counts the first questions of a client that are open, not those that were answered", () => {
  const open: ((held: boolean) => void)[] = [];
  const atOnce: boolean[] = [];
  const slot = { store: { resolved: false } };
  const asking = new Asking({
    engine: { dispatch: (_: unknown, event: { atOnce: boolean }) => atOnce.push(event.atOnce) },
    callers: { ask: (done: (held: boolean) => void) => open.push(done) },
    newcomers: { refusal: () => null, slot: () => slot },
    clock: new FakeTime(),
    mute: () => false,
  } as unknown as AskingParts);
  const ask = (times: number) => {
    for (let i = 0; i < times; i++) asking.one({ id: 1 }, "one", { ok() {}, fail() {} });
  };
  ask(65);
  expect(atOnce.lastIndexOf(true)).toBe(63);
  for (const done of open.splice(0)) done(true);
  ask(1);
  expect(atOnce.at(-1)).toBe(true);
});
