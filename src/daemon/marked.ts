/**
 * Which processes run under which guard, for whoever knows its grant's token alone.
 *
 * A guard's mark is no secret: it is in the name of the command's cgroup, which all users can read. So
 * what a process says of itself counts only for grants of its own user, and against its own user.
 * @module
 */
import type { Left } from "../agent/types.ts";
import { signOf } from "../cli/guard/sweep.ts";
import type { Seen } from "./seen.ts";

/** A guard whose command is looked for. */
export interface Guarded {
  readonly token: string;
  /** The user whom the grant was given to. */
  readonly uid: number;
  readonly mark: string;
}

/** What runs under a guard. */
export interface Carriers {
  /** The processes of the grant's user. */
  readonly own: Set<number>;
  /** Those of others that they started, by sudo for example, or that know the token. */
  readonly others: Set<number>;
}

/** Names the guard of a user; another user's with the same mark is another, made up by one of both. */
export function guardKey({ uid, mark }: Pick<Guarded, "uid" | "mark">): string {
  return `${uid}/${mark}`;
}

/**
 * The marks of the guards that these grants were given to, by token; none for one that was not given to
 * `agent guard`, or whose command has ended.
 *
 * A program under a guard may have grants of its own, and start others with those tokens and the mark
 * of the guard around it. So a mark belongs to the token that it is signed with. Has nobody an environment any
 * more that tells, then a cgroup still says who made it: the client.
 */
export function marksOf(
  grants: Iterable<Pick<Left, "token" | "uid" | "pid">>,
  processes: readonly Seen[],
): Map<string, string> {
  const signed = new Map<string, string>();
  const made = new Map<string, string>();
  for (const { uid, groups, marks, signs } of processes) {
    if (uid === null) continue;
    for (const { maker, mark } of groups) made.set(`${uid}/${maker}`, mark);
    marks.forEach((mark, i) => signed.set(`${uid}/${signs[i]}`, mark));
  }
  const found = new Map<string, string>();
  for (const { token, uid, pid } of grants) {
    const mark = signed.get(`${uid}/${signOf(token)}`) ?? made.get(`${uid}/${pid}`);
    if (mark !== undefined) found.set(token, mark);
  }
  return found;
}

/** The processes that carry these guards' marks, and what those started; by {@linkcode guardKey}. */
export function carriersOf(
  guards: readonly Guarded[],
  processes: readonly Seen[],
): Map<string, Carriers> {
  const users = new Map(processes.map(({ pid, uid }) => [pid, uid]));
  const children = childrenOf(processes);
  const found = new Map(guards.map((guard) => [guardKey(guard), new Set<number>()]));
  const byToken = new Map(guards.map((guard) => [guard.token, found.get(guardKey(guard))!]));
  for (const each of processes) {
    const { pid, uid, token } = each;
    const known = token === null ? undefined : byToken.get(token);
    if (known !== undefined) addTree(pid, known, children);
    if (uid === null) continue;
    for (const mark of [...each.marks, ...each.groups.map(({ mark }) => mark)]) {
      const carriers = found.get(guardKey({ uid, mark }));
      if (carriers !== undefined) addTree(pid, carriers, children);
    }
  }
  return new Map(guards.map((guard) => {
    const all = [...found.get(guardKey(guard))!];
    const own = new Set(all.filter((pid) => users.get(pid) === guard.uid));
    return [guardKey(guard), { own, others: new Set(all).difference(own) }];
  }));
}

function childrenOf(processes: readonly Seen[]): Map<number, number[]> {
  const children = new Map<number, number[]>();
  for (const { pid, parent } of processes) {
    const known = children.get(parent);
    if (known === undefined) children.set(parent, [pid]);
    else known.push(pid);
  }
  return children;
}

function addTree(root: number, found: Set<number>, children: Map<number, number[]>): void {
  const left = [root];
  for (let pid = left.pop(); pid !== undefined; pid = left.pop()) {
    if (found.has(pid)) continue;
    found.add(pid);
    left.push(...children.get(pid) ?? []);
  }
}
