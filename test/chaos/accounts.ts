/**
 * Whether a history is one story: a request is asked for once and answered once, on the node and for
 * the store that it named; a grant ends once; and there is nothing of what the run was not set up with.
 * @module
 */
import type { Violation } from "./checker.ts";
import type { Event, EventOf } from "./history.ts";

type OfRequest = Extract<Event, { id: string }>;

/** What a grant ends with, by who is granted. */
const ENDS: Readonly<Record<EventOf<"ask">["via"], readonly Event["kind"][]>> = {
  socket: ["release", "lost", "unverified"],
  guard: ["exit"],
};

/** The status of a wrapper that was killed: 128, and the number of SIGKILL. */
const KILLED = 137;

/**
 * Calm is noted as soon as all is healed; where the faults were over at once, after their time of 13 s
 * at most, on a busy machine.
 */
const CALM_LATE_MS = 18_000;

/** What there may be after the end: tenures are closed, and a command whose wrapper was killed runs on. */
const AFTER_END: readonly Event["kind"][] = ["tenure", "grant", "written"];

/** What is told of a grant alone. */
const OF_GRANTS: readonly Event["kind"][] = ["extended", "afterwards", ...ENDS.socket];

/** What does not fit together. */
export function checkAccounts(events: readonly Event[], setup: EventOf<"setup">): Violation[] {
  const byId = new Map<string, OfRequest[]>();
  const violations: Violation[] = [];
  const found = (t: number, message: string | null) => {
    if (message !== null) violations.push({ rule: "history", t, message });
  };
  for (const event of events) {
    found(event.t, unknownPlace(event, setup));
    if (!("id" in event)) continue;
    const list = byId.get(event.id);
    if (list === undefined) byId.set(event.id, [event]);
    else list.push(event);
  }
  for (const [id, list] of byId) {
    const wrong = wrongAccount(list, setup.older ?? []);
    found(list[0].t, wrong && `${id} ${wrong}`);
  }
  return [...violations, ...checkPhases(events), ...checkFaults(events)];
}

/** A node or a store that the run does not have. */
function unknownPlace(event: Event, { nodes, stores }: EventOf<"setup">): string | null {
  if ("store" in event && !stores.includes(event.store)) {
    return `${event.kind} of store ${event.store}, which this run does not have`;
  }
  if ("node" in event && !nodes.includes(event.node)) {
    return `${event.kind} of node ${event.node}, which this run does not have`;
  }
  return null;
}

/** What is wrong with all that is told of one request, by time; null if nothing is. */
function wrongAccount(list: readonly OfRequest[], older: readonly string[]): string | null {
  const first = <K extends OfRequest["kind"]>(kind: K) =>
    list.find((event) => event.kind === kind) as EventOf<K> | undefined;
  const [ask, grant, refused] = [first("ask"), first("grant"), first("refused")];
  // The older program asks nobody.
  const via = ask?.via ?? "socket";
  const own = grant !== undefined && older.includes(grant.node);
  if ((ask === undefined) !== own) return own ? "was asked for" : "was never asked for";
  if (ask !== undefined && list[0] !== ask) return `had a ${list[0].kind} before it was asked for`;
  const stranger = list.find((event) => "node" in event && !event.id.startsWith(`${event.node}/`));
  if (stranger !== undefined) return `has a ${stranger.kind} of another node`;
  const places = new Set(
    list.flatMap((event) => "node" in event ? [`${event.node} ${event.store}`] : []),
  );
  if (places.size > 1) return `is of several nodes or stores: ${[...places].join(", ")}`;
  for (const kind of ["ask", "grant", "refused"] as const) {
    if (list.filter((event) => event.kind === kind).length > 1) return `has more than one ${kind}`;
  }
  const [asked, released] = [false, true].map((phase) =>
    list.filter((event) => event.kind === "afterwards" && event.released === phase).length
  );
  if (asked > 1 || released > 1) return "was verified afterwards more than once";
  const ends = list.filter(({ kind }) => [...ENDS.socket, ...ENDS.guard].includes(kind));
  if (ends.length > 1) return `ended more than once: ${ends.map(({ kind }) => kind).join(", ")}`;
  const odd = ends.find(({ kind }) => !ENDS[via].includes(kind));
  if (odd !== undefined) return `was asked for by ${via}, and has a ${odd.kind}`;
  if (grant !== undefined && (grant.deadlineMs === null) !== (via === "guard")) {
    return `was asked for by ${via}, and told the deadline ${grant.deadlineMs}`;
  }
  return wrongAnswer({ list, via, grant, refused });
}

function wrongAnswer(
  { list, via, grant, refused }: {
    readonly list: readonly OfRequest[];
    readonly via: EventOf<"ask">["via"];
    readonly grant: EventOf<"grant"> | undefined;
    readonly refused: EventOf<"refused"> | undefined;
  },
): string | null {
  // What `agent guard` ends with when its command was ended.
  const cut = via === "guard" && refused?.why === "exit 79";
  if (grant !== undefined && refused !== undefined && !cut) {
    return `was granted, and refused with ${refused.why}`;
  }
  if (refused !== undefined && via === "guard" !== refused.why.startsWith("exit ")) {
    return `was asked for by ${via}, and refused with ${refused.why}`;
  }
  const exit = list.find((event) => event.kind === "exit");
  if (refused !== undefined && exit !== undefined) return "was refused, and ended";
  // Any other status that a wrapper ends with by itself is noted as a refusal.
  if (exit !== undefined && ![0, KILLED, null].includes(exit.status)) {
    return `ended with status ${exit.status}`;
  }
  if (exit?.status === 0 && grant === undefined) return "ended with status 0, and never began";
  const early = list.find((event) =>
    OF_GRANTS.includes(event.kind) &&
    (grant === undefined || list.indexOf(event) < list.indexOf(grant))
  );
  return early === undefined ? null : `has a ${early.kind} before it was granted`;
}

/** Calms and what ends them take turns; and after the end nobody tells anything. */
function checkPhases(events: readonly Event[]): Violation[] {
  const violations: Violation[] = [];
  const found = (t: number, message: string) => violations.push({ rule: "history", t, message });
  let phase: "calm" | "disturbed" | null = null;
  let healedMs = Infinity;
  let ended = false;
  for (const { kind, t } of events) {
    if (ended && !AFTER_END.includes(kind)) found(t, `there is a ${kind} after the end`);
    if (kind === "end") ended = true;
    if (kind === "healed") healedMs = t;
    if (kind !== "calm" && kind !== "disturbed") continue;
    if (kind === (phase ?? "disturbed")) {
      found(t, `there is a ${kind} where there was ${phase ?? "no calm"}`);
    }
    if (kind === "calm" && t > healedMs + CALM_LATE_MS) {
      found(t, `calm is noted ${(t - healedMs).toFixed(0)} ms after all was healed`);
    }
    phase = kind;
    healedMs = Infinity;
  }
  return violations;
}

/** Each fault is healed once, and nothing else is. */
function checkFaults(events: readonly Event[]): Violation[] {
  const open = new Map<number, EventOf<"fault">>();
  const seen = new Set<number>();
  const violations: Violation[] = [];
  const found = (t: number, message: string) => violations.push({ rule: "history", t, message });
  for (const event of events) {
    if (event.kind === "fault") {
      if (seen.has(event.fault)) found(event.t, `there are two faults ${event.fault}`);
      open.set(event.fault, event);
      seen.add(event.fault);
    } else if (event.kind === "healed" && !open.delete(event.fault)) {
      found(event.t, `fault ${event.fault} was healed, and was none`);
    } else if (event.kind === "calm" && open.size > 0) {
      found(event.t, `there was calm before fault ${[...open.keys()].join(", ")} was healed`);
    }
  }
  if (!events.some(({ kind }) => kind === "end")) return violations;
  for (const { fault, name, t } of open.values()) {
    found(t, `fault ${fault}, ${name}, was never healed`);
  }
  return violations;
}
