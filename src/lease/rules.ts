/**
 * The safety rules by name. The agent always runs with all of them; the simulator switches one off
 * at a time, to prove that its checkers notice.
 * @module
 */

/** Which rules are in force. */
export interface Rules {
  /** A displaced holder gets the failover grace. */
  readonly grace: boolean;
  /** The tenure is recorded and acknowledged before its first grant. */
  readonly tenureRecord: boolean;
  /** A compare-and-set that was sent after the fence was written is acknowledged before each grant. */
  readonly commitPoint: boolean;
  /** Deadlines count from the send, not from the acknowledgement. */
  readonly deadlineFromSend: boolean;
  /** An acknowledgement after its own deadline proves nothing. */
  readonly lateAck: boolean;
  /** Only an entry of our own incarnation is ours; the node's name is not enough. */
  readonly incarnation: boolean;
  /** A store whose disk has seen a newer epoch is refused. */
  readonly fence: boolean;
  /** An epoch not above the recorded ones is refused. */
  readonly epochFloor: boolean;
  /** A grace that was not served is owed on by whoever holds next. */
  readonly graceCarried: boolean;
  /** A foreign entry without a tenure record owes a grace. */
  readonly stranger: boolean;
  /** A conflict stops granting until it is read back. */
  readonly conflictStops: boolean;
  /** Grants finish, or age out with the lease, before a release. */
  readonly drainFirst: boolean;
}

/** All rules in force. */
export const ALL_RULES: Rules = Object.freeze({
  grace: true,
  tenureRecord: true,
  commitPoint: true,
  deadlineFromSend: true,
  lateAck: true,
  incarnation: true,
  fence: true,
  epochFloor: true,
  graceCarried: true,
  stranger: true,
  conflictStops: true,
  drainFirst: true,
});
