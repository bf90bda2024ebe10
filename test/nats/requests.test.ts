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

/** Time of which timers know only some, as in a process that has no processor. */
class LateTime extends FakeTime {
  lateMs = 0;

  override bootMs(): number {
    return super.bootMs() + this.lateMs;
  }
}

test("send() lets what came be read before it gives up where its own process stood still, but once only", () => {
  const time = new LateTime();
  const requests = silent(time);
  const told: string[] = [];
  const done = ({ kind }: { kind: string }) => void told.push(kind);
  requests.send({ subject: "one", payload: "", decode: decodeWrite, done });
  time.lateMs += 500;
  time.step();
  expect(told).toEqual([]);
  time.lateMs += 500;
  time.step();
  expect(told).toEqual(["unknown"]);
});
