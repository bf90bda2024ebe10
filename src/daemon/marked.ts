/**
 * Which processes run under which guard, for whoever knows its grant's token alone.
 * @module
 */
import type { Process } from "../cli/guard/sweep.ts";

/**
 * The marks of the guards that these tokens were given to, by token; none for one that was not given to
 * `agent guard`, or whose command has ended.
 *
 * A program under a guard may have grants of its own, and start others with those tokens and the mark
 * of the guard around it. The mark belongs to the token of who has run under it for longest: the
 * command itself.
 */
export function marksOf(
  tokens: ReadonlySet<string>,
  processes: readonly Process[],
): Map<string, string> {
  const owners = new Map<string, Process>();
  for (const each of processes) {
    const mark = each.marks.at(-1);
    if (!mark || each.token === null) continue;
    const owner = owners.get(mark);
    if (owner === undefined || each.startTime < owner.startTime) owners.set(mark, each);
  }
  const marks = new Map<string, string>();
  for (const [mark, { token }] of owners) if (tokens.has(token!)) marks.set(token!, mark);
  return marks;
}

/** The processes that carry these marks, and what those started; by mark. */
export function carriersOf(
  marks: ReadonlySet<string>,
  processes: readonly Process[],
): Map<string, Set<number>> {
  const children = new Map<number, number[]>();
  for (const { pid, parent } of processes) {
    const known = children.get(parent);
    if (known === undefined) children.set(parent, [pid]);
    else known.push(pid);
  }
  const carriers = new Map<string, Set<number>>([...marks].map((mark) => [mark, new Set()]));
  for (const each of processes) {
    for (const mark of each.marks) {
      const found = carriers.get(mark);
      if (found !== undefined) addTree(each.pid, found, children);
    }
  }
  return carriers;
}

function addTree(root: number, found: Set<number>, children: Map<number, number[]>): void {
  const left = [root];
  for (let pid = left.pop(); pid !== undefined; pid = left.pop()) {
    if (found.has(pid)) continue;
    found.add(pid);
    left.push(...children.get(pid) ?? []);
  }
}
