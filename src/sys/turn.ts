/**
 * The end of a turn of the event loop: after everything that the sockets had to tell was taken in, and
 * before the next wait. What the events of one turn ask for is done there once for all of them: first
 * what is sent to the coordinator, which works on it meanwhile; then what is to be remembered on disk;
 * then the answers, so that whoever is told that something is over finds it written.
 * @module
 */

const STEPS = ["send", "write", "answer"] as const;

/** What is done in which order. */
export type Step = (typeof STEPS)[number];

const waiting: Record<Step, (() => void)[]> = { send: [], write: [], answer: [] };
let scheduled = false;

/** Has `act` called at the end of this turn. What it puts off in turn is done in the same or the next. */
export function atTurnEnd(step: Step, act: () => void): void {
  waiting[step].push(act);
  if (scheduled) return;
  scheduled = true;
  setImmediate(endTurn);
}

/** A fault of one must not keep the others from their turn. */
function attempt(act: () => void): void {
  try {
    act();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

function endTurn(): void {
  scheduled = false;
  for (const step of STEPS) {
    const acts = waiting[step];
    if (acts.length === 0) continue;
    waiting[step] = [];
    for (const act of acts) attempt(act);
  }
}
