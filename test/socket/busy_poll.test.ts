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
  const turn = () => {
    const call = next;
    next = null;
    nowMs += 0.0625;
    call?.();
    return call !== null;
  };
  /** How many turns a request gets that is answered in the given one, if that is polled for at all. */
  const turnsOf = (answeredIn = Infinity) => {
    poll.awaitAnswer();
    let turns = 0;
    while (turn()) {
      if (++turns === answeredIn - 1) poll.answered();
    }
    if (turns < answeredIn - 1) poll.answered();
    return turns;
  };
  return { poll, turn, turnsOf };
}

describe("BusyPoll", () => {
  test("turns until the answer is there, and not once more", () => {
    const { turnsOf } = played();
    expect(turnsOf(3)).toBe(3);
    expect(turnsOf(2)).toBe(2);
  });

  test("turns for a fifth of a millisecond at most", () => {
    expect(played().turnsOf()).toBe(4);
  });

  test("a later request prolongs the poll, and the answer of one leaves it to the other", () => {
    const { poll, turn } = played();
    poll.awaitAnswer();
    turn();
    turn();
    poll.awaitAnswer();
    poll.answered();
    for (let i = 0; i < 4; i++) expect(turn()).toBe(true);
    expect(turn()).toBe(false);
  });

  test("polls in vain make it rare, down to one request of 257; polls that pay bring it back", () => {
    const { turnsOf } = played();
    const gaps: number[] = [];
    let gap = 0;
    while (gaps.length < 12) {
      if (turnsOf() === 0) gap++;
      else {
        gaps.push(gap);
        gap = 0;
      }
    }
    expect(gaps).toEqual([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256]);
    // The coordinator is near again: soon each is polled for.
    while (turnsOf(2) === 0);
    const polled = Array.from({ length: 20 }, () => turnsOf(2));
    expect(polled).toEqual(Array(20).fill(2));
  });

  test("an answer that nobody polls for changes nothing", () => {
    const { poll, turn, turnsOf } = played();
    poll.answered();
    expect(turn()).toBe(false);
    expect(turnsOf()).toBe(4);
  });

  test("never polls where there is one processor", () => {
    expect(played(1).turnsOf()).toBe(0);
  });
});
