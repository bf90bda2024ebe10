import { expect, test } from "bun:test";
import { TURN_MS, Turns } from "../../src/socket/turns.ts";

/** Keeps the processor busy. */
function work(ms: number): void {
  for (const until = performance.now() + ms; performance.now() < until;);
}

test("add() gives turns in order, and lets others run in between", async () => {
  const turns = new Turns();
  const order: string[] = [];
  let left = 20;
  await new Promise<void>((resolve) => {
    const take = (name: string) => () => {
      order.push(name);
      work(TURN_MS);
      if (--left > 0) turns.add(take(name));
      else resolve();
    };
    turns.add(take("a"));
    turns.add(take("b"));
    expect(order).toEqual([]);
    const others = () => {
      order.push("-");
      if (left > 0) setImmediate(others);
    };
    setImmediate(others);
  });
  const given = order.filter((name) => name !== "-").join("");
  expect(given).toBe("ab".repeat(10) + given.slice(20));
  // Nobody else waits for more than a round.
  const rounds = order.join("").split("-").map((round) => round.length);
  expect(Math.max(...rounds)).toBeLessThan(10);
});
