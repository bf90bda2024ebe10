import { expect, test } from "bun:test";
import { GrantLink, type GrantListener } from "../../../src/cli/guard/grant_link.ts";
import type { LockedGrant } from "../../../src/cli/guard/locked_grant.ts";
import { bootTimeMs } from "../../../src/sys/boot_time.ts";

/** A link to an agent that answers so; what it is told, and what the listener heard. */
function link(call: () => Promise<unknown>) {
  const heard: (number | "lost")[] = [];
  let tell: (notification: unknown) => void = () => {};
  const connection = {
    call,
    closed: new Promise(() => {}),
    onNotification: (listener: typeof tell) => (tell = listener),
  };
  const grant = { result: { token: "t", store: "s" }, connection, early: [] };
  const listener: GrantListener = {
    onDeadline: (deadlineMs) => void heard.push(deadlineMs),
    onLost: () => void heard.push("lost"),
    onAgentGone: () => {},
  };
  const made = new GrantLink(grant as unknown as LockedGrant, listener);
  return { link: made, heard, tell: (each: unknown) => tell(each) };
}

test("prove() counts what is left from when it asked, however long the answer took", async () => {
  let askedMs = 0;
  const { link: asking, heard } = link(() => {
    askedMs = bootTimeMs();
    while (bootTimeMs() < askedMs + 20);
    return Promise.resolve({ remaining_ms: 1_000 });
  });
  await asking.prove();
  expect(heard).toHaveLength(1);
  expect(heard[0]).toBeLessThanOrEqual(askedMs + 1_000);
});

test("a link takes what is told of its own grant alone", () => {
  const { heard, tell } = link(() => Promise.reject(new Error()));
  tell({ method: "lost", params: { token: "other", message: "It is lost." } });
  tell({ method: "renewed", params: { token: "other", deadline_boot_ms: 5 } });
  expect(heard).toEqual([]);
  tell({ method: "renewed", params: { token: "t", deadline_boot_ms: 5 } });
  expect(heard).toEqual([5]);
});
