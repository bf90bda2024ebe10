/**
 * The name of a command that programs call, not people: see {@linkcode execLocked}. Apart from it, so
 * that every start of this program looks at no more than that.
 * @module
 */

/** `agent exec-locked [--report N] -- COMMAND [ARG…]`; docs/protocol.md tells it to writers of clients. */
export const EXEC_LOCKED_COMMAND = "exec-locked";
