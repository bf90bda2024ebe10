import { expect, test } from "bun:test";
import { Inherited } from "../../src/daemon/inherited.ts";
import { FakeTime } from "../support/fake_time.ts";

/** When grants end of which one was told `inheritedMs`, once a TTL of 5 s is known; null: never. */
function endsAfterMs(inheritedMs: number, act: (inherited: Inherited) => void): number | null {
  const time = new FakeTime();
  const startedMs = time.bootMs();
  let endedMs: number | null = null;
  const grants = { inheritedMs, endInherited: () => endedMs = time.bootMs() - startedMs };
  const inherited = new Inherited(grants, { clock: time, timers: time });
  act(inherited);
  while (endedMs === null && time.step());
  return endedMs;
}

test("onTtl() ends what was inherited when every TTL that may count is over", () => {
  expect(endsAfterMs(0, (inherited) => inherited.onTtl(5_000))).toBe(5_000);
  expect(endsAfterMs(9_000, (inherited) => inherited.onTtl(5_000))).toBe(9_000);
});

test("onTtl() begins to count once, however often the coordinator is reached again", () => {
  const act = (inherited: Inherited) => {
    inherited.onTtl(5_000);
    inherited.onTtl(60_000);
  };
  expect(endsAfterMs(0, act)).toBe(5_000);
});

test("close() leaves to the next agent what is not over yet", () => {
  const act = (inherited: Inherited) => {
    inherited.onTtl(5_000);
    inherited.close();
  };
  expect(endsAfterMs(0, act)).toBe(null);
});
