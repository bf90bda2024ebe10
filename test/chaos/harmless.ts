/**
 * Changes of a history that no rule has to notice, each with its reason: what the run was is its premise,
 * and some things may be so or otherwise.
 * @module
 */

/** By the names of mutations, without what a text became. */
export const HARMLESS: Readonly<Record<string, string>> = {
  "setup.t less": "the run began earlier",
  "setup.seed less": "a label",
  "setup.seed more": "a label",
  "setup.servers unknown": "a label",
  "setup.nodes with another": "one more that did nothing",
  "setup.recoveryMs less": "the bound itself: a premise, and kept all the same",
  "setup.recoveryMs more": "the bound itself: a premise",
  "ask.id unknown": "the client was killed before the answer: one request is like another",
  "ask.t less": "the client was killed before the answer: how long it had waited says nothing",
  "ask.via is": "the client was killed before the answer",
  "ask.waitMs more": "whoever would have waited longer is answered at once all the same",
  "ask.waitLease other": "there was nothing to wait for, or no time",
  "ask.writes left out": "only a command has to write so many lines",
  "extended.by is": "the same deadline, learnt by another way",
  "extended.sentMs left out": "as in older histories: it was sent after the grant",
  "afterwards.id is": "the other grant was over, too",
  "afterwards.answer is no_token": "lost, and let go",
  "afterwards.t more": "it was asked later",
  "lost.kind is release": "the client gave it back just before the agent was killed",
  "lost.why is not_holder": "the agent said so just before it was killed",
  "refused.holder left out": "in an aftermath a conflict may be met, and not read whose",
  "refused.holder null": "in an aftermath a conflict may be met, and not read whose",
  "refused.holder with epoch null": "an entry is there before its tenure's record",
  "refused.why is busy": "somebody else was there, too",
  "refused.why is not_holder": "in an aftermath a conflict may be met, and not read whose",
  "exit.status null": "a wrapper that is killed when its command has just ended",
  "exit.t more": "a command may run for as long as its lease is renewed",
  "written.doneMs left out": "its writer may have been killed before it could tell",
  "fault.name is": "a premise: another fault excuses the same, or nothing had to be excused",
  "fault.name unknown": "a premise: what is not known excuses the same, or nothing had to be",
  "fault.t less": "a premise: the fault began earlier",
  "fault.targets with another": "a premise: it hit one more",
  "fault.targets without the first": "a premise: what hits none of the nodes may hit all",
  "disturbed.t less": "the calm was shorter, and long enough",
  "end.t more": "the clients ended later",
};
