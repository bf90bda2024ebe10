import { expect, test } from "bun:test";
import { atTurnEnd } from "../../src/sys/turn.ts";

test("atTurnEnd() sends, then writes, then answers, whoever asked first", async () => {
  const done: string[] = [];
  for (const step of ["answer", "write", "send", "write", "answer", "send"] as const) {
    atTurnEnd(step, () => done.push(step));
  }
  queueMicrotask(() => done.push("the rest of the turn"));
  await new Promise((resolve) => setImmediate(resolve));
  expect(done).toEqual([
    "the rest of the turn",
    "send",
    "send",
    "write",
    "write",
    "answer",
    "answer",
  ]);
});

test("atTurnEnd() loses nothing that is asked for while a turn ends", async () => {
  const done: string[] = [];
  const all = new Promise<void>((resolve) => {
    atTurnEnd("write", () => {
      atTurnEnd("answer", () => done.push("answered in the same turn"));
      atTurnEnd("send", () => {
        done.push("sent in the next");
        resolve();
      });
    });
  });
  await all;
  expect(done).toEqual(["answered in the same turn", "sent in the next"]);
});
