/** When requests that are not answered are given up. */
import { expect, test } from "bun:test";
import { Requests, type RequestsOptions } from "../../src/nats/requests.ts";
import { decodeWrite } from "../../src/nats/wire.ts";
import { FakeTime } from "../support/fake_time.ts";

const TIMEOUT_MS = 1_500;

function silent(time: FakeTime): Requests {
  return new Requests({
    nc: { subscribe() {} } as unknown as RequestsOptions["nc"],
    transport: { takeReplies() {}, write() {} } as unknown as RequestsOptions["transport"],
    isUp: () => true,
    clock: time,
    timers: time,
    timeoutMs: TIMEOUT_MS,
    onTrouble() {},
    onAnswer() {},
  });
}

test("send() gives each request its own time, also where another is sent when an older one is given up", () => {
  const time = new FakeTime();
  const startMs = time.bootMs();
  const requests = silent(time);
  const givenUp: [string, number][] = [];
  const send = (name: string, then = () => {}) =>
    requests.send({
      subject: name,
      payload: "",
      decode: decodeWrite,
      done: ({ kind }) => {
        expect(kind).toBe("unknown");
        givenUp.push([name, time.bootMs() - startMs]);
        then();
      },
    });
  send("first", () => send("again"));
  time.after(100, () => send("second"));
  while (givenUp.length < 3 && time.step());
  expect(givenUp).toEqual([
    ["first", TIMEOUT_MS],
    ["second", TIMEOUT_MS + 100],
    ["again", 2 * TIMEOUT_MS],
  ]);
});
