import { expect, test } from "bun:test";
import { Window } from "../../src/agent/window.ts";

function answer(window: Window, tookMs: number, times: number): void {
  for (let i = 0; i < times; i++) {
    window.sent(0);
    window.answered(tookMs, true);
  }
}

test("answered() widens the window while answers come as quickly as ever, over any distance", () => {
  for (const tookMs of [0.2, 50]) {
    const window = new Window();
    answer(window, tookMs, 100);
    expect(window.size).toBe(2_048);
  }
});

test("answered() narrows the window when answers wait for each other, but never to nothing", () => {
  const window = new Window();
  answer(window, 1, 100);
  answer(window, 100, 3);
  expect(window.size).toBeLessThan(1_000);
  answer(window, 1_500, 100);
  expect(window.size).toBe(64);
});

test("reset() forgets how quick another connection was", () => {
  const window = new Window();
  answer(window, 1, 1);
  window.reset();
  answer(window, 50, 100);
  expect(window.size).toBe(2_048);
});
