/**
 * What holds of every transition, whatever comes in whatever order: answers that fit and answers
 * that do not, late ones, twice ones, and time that stands still or leaps.
 * @module
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { initialLease } from "../../src/lease/acquire.ts";
import { isOpen, isValid } from "../../src/lease/keep.ts";
import { ALL_RULES, type Rules } from "../../src/lease/rules.ts";
import type { LeaseContext } from "../../src/lease/lease_context.ts";
import type { LeaseEvent, LeaseOutput, LeaseRequest, LeaseState } from "../../src/lease/state.ts";
import { step, wakeAtMs } from "../../src/lease/step.ts";
import { timingOf } from "../../src/lease/timing.ts";
import { entryOf, ME, tenureOf } from "./harness.ts";

const TIMING = timingOf({ ttlMs: 3_000 });

const unknown = fc.constant({ kind: "unknown", reason: "no answer" } as const);
const conflict = fc.constant({ kind: "conflict" } as const);
const epochs = fc.integer({ min: 1, max: 30 });
const found = fc.oneof(
  fc.constant({ kind: "none" } as const),
  epochs.map((revision) => ({ kind: "tombstone", revision }) as const),
  epochs.map((revision) => entryOf("alpha", ME, revision)),
  epochs.map((revision) => entryOf("alpha", "i-dead", revision)),
  epochs.map((revision) => entryOf("beta", "i-beta", revision)),
  epochs.map((revision) => entryOf("older", null, revision)),
);
const record = fc.oneof(
  fc.constant(null),
  fc.tuple(fc.constantFrom(ME, "i-beta", "i-dead"), epochs, fc.boolean())
    .map(([incarnation, epoch, released]) => tenureOf(incarnation, epoch, released)),
);

type Answer = { [T in LeaseRequest["type"]]: unknown };

/** An answer of each kind, to whichever request is picked. */
const answer: fc.Arbitrary<Answer> = fc.record({
  put_entry: fc.oneof(fc.constant("ok"), conflict, unknown),
  delete_entry: fc.oneof(fc.constant("ok"), conflict, unknown),
  read_entry: fc.oneof(found.map((value) => ({ kind: "ok", value })), unknown),
  read_tenure: fc.oneof(
    fc.tuple(epochs, record).map(([revision, of]) => ({
      kind: "ok",
      value: { revision, record: of },
    })),
    unknown,
  ),
  put_tenure: fc.oneof(fc.constant("ok"), conflict, unknown),
});

type Move =
  | { readonly do: "event"; readonly event: LeaseEvent }
  | { readonly do: "answer"; readonly which: number; readonly answer: Answer }
  | { readonly do: "pass"; readonly ms: number }
  | { readonly do: "connect"; readonly connected: boolean };

const move: fc.Arbitrary<Move> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("answer" as const), which: fc.nat(), answer }),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom<LeaseEvent>(
      { type: "acquire" },
      { type: "prove" },
      { type: "tick" },
      { type: "release", reason: "idle" },
      { type: "tenure", record: tenureOf("i-beta", 7, true) },
    ).map((event) => ({ do: "event" as const, event })),
  },
  {
    weight: 3,
    arbitrary: fc.oneof(fc.integer({ min: 0, max: 400 }), fc.integer({ min: 0, max: 9_000 }))
      .map((ms) => ({ do: "pass" as const, ms })),
  },
  {
    weight: 1,
    arbitrary: fc.boolean().map((connected) => ({ do: "connect" as const, connected })),
  },
);

const ANSWERS = {
  put_entry: "put_done",
  delete_entry: "delete_done",
  read_entry: "entry_read",
  read_tenure: "tenure_read",
  put_tenure: "tenure_put",
} as const;

/** Plays moves, and looks at each transition. */
class Player {
  nowMs = 0;
  connected = true;
  state: LeaseState = initialLease();
  revision = 100;
  readonly requests: LeaseRequest[] = [];
  readonly sentMs = new Map<number, number>();
  /** When the newest write acknowledged before the hold's deadline was sent. */
  provenMs = -Infinity;
  recordedEpoch = -1;
  lastEpoch = -1;
  readonly rules: Rules;

  constructor(rules: Rules = ALL_RULES) {
    this.rules = rules;
  }

  get context(): LeaseContext {
    return {
      timing: TIMING,
      node: "alpha",
      incarnation: ME,
      rules: this.rules,
      connected: this.connected,
      inherits: (id) => id === "i-dead" ? { clientsGone: true } : null,
    };
  }

  play(next: Move): void {
    switch (next.do) {
      case "pass":
        this.nowMs += next.ms;
        return this.take({ type: "tick" });
      case "connect":
        this.connected = next.connected;
        return next.connected ? this.take({ type: "connected" }) : undefined;
      case "event":
        return this.take(next.event);
      case "answer": {
        if (this.requests.length === 0) return;
        // Not always to the newest question: some answers are late, and some come twice.
        const back = next.which % (this.requests.length + 8);
        const request = this.requests.at(back < this.requests.length ? -1 - back : -1)!;
        const outcome = this.outcomeOf(next.answer[request.type]);
        return this.take({ type: ANSWERS[request.type], seq: request.seq, outcome } as LeaseEvent);
      }
    }
  }

  outcomeOf(drawn: unknown): unknown {
    return drawn === "ok" ? { kind: "ok", value: ++this.revision } : drawn;
  }

  take(event: LeaseEvent): void {
    const before = this.state;
    const { state, outputs } = step(before, event, this.nowMs, this.context);
    this.state = state;
    this.#follow(before, event);
    for (const output of outputs) this.#check(output);
    this.#checkState(before);
  }

  #follow(before: LeaseState, event: LeaseEvent): void {
    if (event.type === "put_done" && event.outcome.kind === "ok") {
      const expected = before.phase === "ours" ? before.write?.seq : before.seq;
      const counts = before.phase === "acquiring" ||
        (before.phase === "ours" && isValid(before, this.nowMs, this.context));
      if (counts && event.seq === expected) this.provenMs = this.sentMs.get(event.seq)!;
    }
    if (event.type === "tenure_put" && event.outcome.kind === "ok" && before.phase === "ours") {
      if (before.record.at === "writing" && before.record.seq === event.seq) {
        this.recordedEpoch = before.epoch;
      }
    }
  }

  #check(output: LeaseOutput): void {
    if (!("seq" in output) || output.type === "proven") return;
    const request = output as LeaseRequest;
    // Numbers only grow, so an answer names its question.
    expect(Math.max(0, ...this.sentMs.keys())).toBeLessThan(request.seq);
    this.requests.push(request);
    this.sentMs.set(request.seq, this.nowMs);
  }

  #checkState(before: LeaseState): void {
    const { state, context, nowMs } = this;
    expect(state.seq).toBeGreaterThanOrEqual(before.seq);
    expect(wakeAtMs(state, context)).not.toBeNaN();
    if (state.phase !== "ours") return;
    // Believed for no longer than the newest write acknowledged in time allows.
    expect(state.provenAtMs).toBe(this.provenMs);
    if (before.phase !== "ours" || before.epoch !== state.epoch) {
      expect(state.epoch).toBeGreaterThan(this.lastEpoch);
      this.lastEpoch = state.epoch;
    }
    if (!isOpen(state, nowMs, context)) return;
    expect(state.doubt).toBeNull();
    expect(this.recordedEpoch).toBe(state.epoch);
    expect(nowMs).toBeLessThan(this.provenMs + TIMING.ttlMs - TIMING.marginMs);
    // Something will move it on: it never waits for ever.
    expect(wakeAtMs(state, context)).toBeLessThanOrEqual(
      this.provenMs + TIMING.ttlMs - TIMING.marginMs,
    );
  }
}

function promises(rules: Rules) {
  return fc.property(fc.array(move, { minLength: 5, maxLength: 80 }), (moves) => {
    const player = new Player(rules);
    for (const next of moves) player.play(next);
  });
}

test("step() keeps its promises whatever comes", () => {
  fc.assert(promises(ALL_RULES), { numRuns: 2_000 });
});

test.each(["deadlineFromSend", "tenureRecord", "conflictStops"] as const)(
  "step() is seen to break its promises without the rule %s",
  (rule) => {
    const seed = 1;
    expect(fc.check(promises({ ...ALL_RULES, [rule]: false }), { numRuns: 5_000, seed }).failed)
      .toBe(true);
  },
);

test("step() leads to a hold when everything answers, from wherever it was", () => {
  fc.assert(
    fc.property(fc.array(move, { maxLength: 60 }), (moves) => {
      const player = new Player();
      for (const next of moves) player.play(next);
      player.connected = true;
      player.requests.length = 0;
      player.take({ type: "connected" });
      // Whatever was under way is given up on, as by its timeout, then every answer is good.
      const unanswered = [...player.sentMs.keys()];
      for (const seq of unanswered) {
        for (const type of Object.values(ANSWERS)) {
          player.take({ type, seq, outcome: { kind: "unknown", reason: "late" } } as LeaseEvent);
        }
      }
      for (let i = 0; i < 60 && !isOpen(player.state, player.nowMs, player.context); i++) {
        player.nowMs += 50;
        player.take({ type: "tick" });
        if (player.state.phase === "idle" || player.state.phase === "foreign") {
          player.take({ type: "acquire" });
        }
        const request = player.requests.at(-1);
        if (request === undefined) continue;
        player.requests.length = 0;
        const value = request.type === "read_entry"
          ? { kind: "none" }
          : request.type === "read_tenure"
          ? { revision: 1, record: null }
          : ++player.revision;
        player.take(
          {
            type: ANSWERS[request.type],
            seq: request.seq,
            outcome: { kind: "ok", value },
          } as never,
        );
      }
      expect(player.state.phase).toBe("ours");
    }),
    { numRuns: 1_000 },
  );
});
