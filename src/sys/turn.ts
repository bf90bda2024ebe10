/**
 * The end of a turn of the event loop: after everything that the sockets had to tell was taken in, and
 * before the next wait. What many events of one turn ask for is done there once for all of them.
 * @module
 */

const sends: (() => void)[] = [];
const notes: (() => void)[] = [];
let scheduled = false;

/** Has `send` called at the end of this turn; for what somebody waits for. */
export function sendAtTurnEnd(send: () => void): void {
  sends.push(send);
  schedule();
}

/** Has `note` called at the end of this turn, after everything that somebody waits for. */
export function noteAtTurnEnd(note: () => void): void {
  notes.push(note);
  schedule();
}

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  setImmediate(endTurn);
}

function endTurn(): void {
  scheduled = false;
  try {
    for (let i = 0; i < sends.length; i++) sends[i]();
    sends.length = 0;
    for (let i = 0; i < notes.length; i++) notes[i]();
    notes.length = 0;
  } finally {
    // After a fault, which the process does not survive: nothing is done twice on the way out.
    sends.length = notes.length = 0;
  }
}
