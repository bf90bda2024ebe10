import { describe, expect, test } from "bun:test";
import { BusyPoll } from "../../src/socket/busy_poll.ts";

/** A poll whose turns are taken by hand, each of which takes a sixteenth of a millisecond. */
function played(processors = 2) {
  let nowMs = 1_000;
  let next: (() => void) | null = null;
  const poll = new BusyPoll({
    nowMs: () => nowMs,
    nextTurn: (call) => void (next = call),
    processors,
  });
  /** Takes turns as long as the poll asks for them, and no more than that; returns how many. */
  const turns = (most = Infinity) => {
    let taken = 0;
    while (taken < most && next !== null) {
      const call: () => void = next;
      next = null;
      nowMs += 0.0625;
      call();
      taken++;
    }
    return taken;
  };
  return { poll, turns, pass: (ms: number) => void (nowMs += ms) };
}

describe("BusyPoll", () => {
  test("turns for two requests until both have their answers, and not once more", () => {
    const { poll, turns } = played();
    poll.awaitAnswer();
    poll.awaitAnswer();
    expect(turns(2)).toBe(2);
    poll.answered();
    expect(turns(1)).toBe(1);
    poll.answered();
    expect(turns()).toBe(1);
  });

  test("turns for a fifth of a millisecond at most; a later request prolongs it", () => {
    const { poll, turns } = played();
    poll.awaitAnswer();
    poll.awaitAnswer();
    expect(turns(2)).toBe(2);
    poll.awaitAnswer();
    expect(turns()).toBe(4);
    poll.awaitAnswer();
    expect(turns()).toBe(0);
  });

  test("does not turn for one request, nor for one beside those that wait for long", () => {
    const { poll, turns, pass } = played();
    for (let i = 0; i < 3; i++) {
      poll.awaitAnswer();
      expect(turns()).toBe(0);
      pass(1);
    }
    poll.awaitAnswer();
    poll.answered();
    poll.awaitAnswer();
    expect(turns()).toBe(0);
  });

  test("an answer that is not polled for changes nothing", () => {
    const { poll, turns } = played();
    poll.answered();
    poll.awaitAnswer();
    poll.awaitAnswer();
    expect(turns()).toBe(4);
  });

  test("never turns where there is one processor", () => {
    const { poll, turns } = played(1);
    poll.awaitAnswer();
    poll.awaitAnswer();
    expect(turns()).toBe(0);
  });
});
