/**
 * The command's arguments and environment, byte for byte as we were given them.
 *
 * The runtime shows both as text, which loses what is not UTF-8: file names in other encodings are
 * arguments all the same. So they are read where the kernel keeps them.
 * @module
 */
import { readFileSync } from "node:fs";
import { descriptorLimit, setDescriptorLimit } from "../../sys/process.ts";
import { MARKS_VARIABLE, marksIn } from "./sweep.ts";

/** Whatever an outer guard set: none of it holds for a command under another guard. */
const OURS = /^(?:ZIT_LEASE_(?:STORE|EPOCH|TOKEN|NODE|LOCK_FD|UNGUARDED|GUARDS)|ZIT_AGENT_SOCKET)=/;

/** The last `count` arguments of this process. */
export function lastArguments(count: number): Buffer[] {
  return splitAtNul(readFileSync("/proc/self/cmdline")).slice(-count);
}

/**
 * Our environment for a guarded command: without what an outer guard set, with `variables`, and with
 * `mark` (if any, signed) added to the marks of the guards around us, to whose commands ours belongs, too.
 * ZIT_AGENT_SOCKET stays unless it is set anew.
 */
export function guardedEnvironment(
  variables: Readonly<Record<string, string>>,
  mark: string | null,
): Buffer[] {
  const inherited = splitAtNul(readFileSync("/proc/self/environ"));
  const kept = inherited.filter((entry) => !isReplaced(entry.toString("latin1"), variables));
  const outer = marksIn(inherited.map((entry) => entry.toString("latin1")));
  const marks = [...outer, mark].filter((each) => each).join(":");
  const added = Object.entries(marks ? { ...variables, [MARKS_VARIABLE]: marks } : variables);
  return [...kept, ...added.map(([name, value]) => Buffer.from(`${name}=${value}`))];
}

/**
 * Sets the limit of open files back to what it was for us: the runtime raises it for itself, and
 * programs that go through all descriptors they might have take long with a high one. What it was is
 * not on record; our parent most likely has the same.
 */
export function restoreDescriptorLimit(): void {
  try {
    const limits = readFileSync(`/proc/${process.ppid}/limits`, "latin1");
    const soft = Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1]);
    if (soft < descriptorLimit().soft) setDescriptorLimit(soft);
  } catch {
    // Not ours to see: it stays as it is.
  }
}

function isReplaced(entry: string, variables: Readonly<Record<string, string>>): boolean {
  const name = OURS.exec(entry)?.[0].slice(0, -1);
  return name !== undefined && (name !== "ZIT_AGENT_SOCKET" || name in variables);
}

function splitAtNul(bytes: Buffer): Buffer[] {
  const parts: Buffer[] = [];
  for (let start = 0; start < bytes.length;) {
    const end = bytes.indexOf(0, start);
    const stop = end < 0 ? bytes.length : end;
    parts.push(bytes.subarray(start, stop));
    start = stop + 1;
  }
  return parts;
}
