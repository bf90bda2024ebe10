/**
 * Draws a history as SVG: time to the right; the faults by name on top, and as bands over the lanes
 * they hit; a lane for each node with a line for each store, where a bar is a grant; a lane for each
 * server; what is wrong in red. Hovering tells more.
 * @module
 */
import type { Verdict, Violation } from "./checker.ts";
import type { Event, EventOf } from "./history.ts";
import { attemptsOf } from "./sections.ts";

const PX_PER_S = 40;
const LEFT = 90;
const ROW = 12;
const LANE_GAP = 16;
/** What is wrong within so much is one line: the longest name of a rule, and a count, fit in. */
const VIOLATION_PX = 80;
/** Violations that a line tells when hovered over. */
const MAX_TITLES = 10;
/** Of the font's letters, on the wide side. */
const PX_PER_LETTER = 5.5;
const COLOURS = ["#4477aa", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb"];

/** Draws a history with its verdict. */
export function drawTimeline(events: readonly Event[], verdict: Verdict): string {
  const setup = events.find((event) => event.kind === "setup")!;
  const startMs = setup.t;
  const endMs = events.at(-1)!.t;
  const x = (t: number) => LEFT + ((t - startMs) / 1_000) * PX_PER_S;
  const servers = [
    ...new Set(events.flatMap((event) => event.kind === "fault" ? event.targets : [])),
  ]
    .filter((name) => !setup.nodes.includes(name)).sort();
  const lanes = new Map<string, { y: number; height: number }>();
  const faults = placeFaults(events, x);
  let y = 30 + Math.max(0, ...faults.map(({ row }) => row + 1)) * ROW + LANE_GAP;
  for (const name of [...setup.nodes, ...servers]) {
    const height = ROW * (setup.nodes.includes(name) ? setup.stores.length : 1);
    lanes.set(name, { y, height });
    y += height + LANE_GAP;
  }
  const parts: string[] = [];
  for (const [name, lane] of lanes) {
    parts.push(`<text x="4" y="${lane.y + ROW - 2}" font-weight="bold">${text(name)}</text>`);
    parts.push(box({ x: LEFT, y: lane.y, w: x(endMs) - LEFT, h: lane.height, fill: "#f4f4f4" }));
    if (!setup.nodes.includes(name)) continue;
    setup.stores.forEach((store, index) => {
      const at = lane.y + (index + 1) * ROW - 2;
      parts.push(
        `<text x="${LEFT - 4}" y="${at}" text-anchor="end" fill="#888">${text(store)}</text>`,
      );
    });
  }
  parts.push(...faults.flatMap((fault) => drawFault(fault, lanes)));
  const row = (node: string, store: string) =>
    lanes.get(node)!.y + setup.stores.indexOf(store) * ROW;
  for (const { id, grant, spans, writes } of attemptsOf(events).values()) {
    if (grant === null) continue;
    const fill = COLOURS[setup.stores.indexOf(grant.store) % COLOURS.length];
    const top = row(grant.node, grant.store);
    for (const { fromMs, toMs } of spans) {
      const title = `${id}: ${grant.store}, epoch ${grant.epoch}, ${writes.length} writes, ` +
        `${(toMs - fromMs).toFixed(0)} ms`;
      const w = Math.max(1, x(toMs) - x(fromMs));
      parts.push(box({ x: x(fromMs), y: top + 1, w, h: ROW - 2, fill, title }));
    }
  }
  parts.push(...drawViolations(verdict.violations, x, y));
  for (let s = 0; s * 1_000 <= endMs - startMs; s += 5) {
    const at = LEFT + s * PX_PER_S;
    parts.push(`<text x="${at}" y="14" fill="#888">${s} s</text>`);
    parts.push(`<line x1="${at}" x2="${at}" y1="18" y2="${y}" stroke="#ddd"/>`);
  }
  const legend = setup.stores.map((store, index) =>
    `<tspan fill="${COLOURS[index % COLOURS.length]}"> ■ ${text(store)}</tspan>`
  ).join("");
  parts.push(
    `<text x="4" y="${y + 14}">seed ${setup.seed}, TTL ${setup.ttlMs} ms, ${setup.locks} locks, ` +
      `${text(setup.servers)}, sync ${
        setup.sync ?? "default"
      }, ${setup.network}: ${verdict.grants} grants, ` +
      `${verdict.violations.length} violations.${legend}</text>`,
  );
  const width = Math.ceil(x(endMs) + 20);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${y + 24}" ` +
    `font-family="sans-serif" font-size="10">\n<rect width="100%" height="100%" fill="white"/>\n` +
    parts.join("\n") + "\n</svg>\n";
}

/** What is wrong: a line for each, as far as lines can be told apart, and how many more there are. */
function drawViolations(
  violations: readonly Violation[],
  x: (t: number) => number,
  y: number,
): string[] {
  const lines: { at: number; rule: string; titles: string[] }[] = [];
  for (const { t, rule, message } of violations) {
    const last = lines.at(-1);
    const title = `${rule}: ${message}`;
    if (last !== undefined && x(t) - last.at < VIOLATION_PX) last.titles.push(title);
    else lines.push({ at: x(t), rule, titles: [title] });
  }
  return lines.map(({ at, rule, titles }) => {
    const more = titles.length - 1;
    const shown = titles.slice(0, MAX_TITLES);
    if (titles.length > MAX_TITLES) shown.push(`… and ${titles.length - MAX_TITLES} more`);
    return `<line x1="${at.toFixed(1)}" x2="${at.toFixed(1)}" y1="20" y2="${y}" stroke="red" ` +
      `stroke-width="2"><title>${text(shown.join("\n"))}</title></line>` +
      `<text x="${(at + 3).toFixed(1)}" y="${y}" fill="red">${rule}` +
      `${more > 0 ? ` +${more}` : ""}</text>`;
  });
}

/** A fault with its place: the row of names that has room for it. */
interface Placed {
  readonly fault: EventOf<"fault">;
  readonly fromX: number;
  readonly toX: number;
  readonly row: number;
}

/** Faults in their order, each in the first row of names where it hides none before it. */
function placeFaults(events: readonly Event[], x: (t: number) => number): Placed[] {
  const rowEnds: number[] = [];
  return events.filter((event) => event.kind === "fault").map((fault) => {
    const healed = events.find((event) => event.kind === "healed" && event.fault === fault.fault);
    const fromX = x(fault.t);
    const toX = Math.max(fromX + 3, x(healed?.t ?? fault.t));
    const free = rowEnds.findIndex((end) => end < fromX);
    const row = free === -1 ? rowEnds.length : free;
    rowEnds[row] = Math.max(toX, fromX + titleOf(fault).length * PX_PER_LETTER);
    return { fault, fromX, toX, row };
  });
}

function titleOf({ name, targets, detail }: EventOf<"fault">): string {
  return `${name}: ${targets.join(" ")}${detail === undefined ? "" : ` (${detail})`}`;
}

function drawFault(
  { fault, fromX, toX, row }: Placed,
  lanes: ReadonlyMap<string, { y: number; height: number }>,
): string[] {
  const title = titleOf(fault);
  const y = 30 + row * ROW;
  const [x, w] = [fromX, toX - fromX];
  const parts = [
    box({ x, y: y - ROW + 4, w, h: ROW - 2, fill: "#ee667799", title }),
    `<text x="${(x + 2).toFixed(1)}" y="${y}" fill="#a00">${text(title)}</text>`,
  ];
  for (const target of fault.targets) {
    const lane = lanes.get(target);
    if (lane === undefined) continue;
    parts.push(box({ x, y: lane.y - 4, w, h: lane.height + 8, fill: "#ee667755", title }));
  }
  return parts;
}

function box(
  { x, y, w, h, fill, title }: {
    x: number;
    y: number;
    w: number;
    h: number;
    fill: string;
    title?: string;
  },
): string {
  const inside = title === undefined ? "" : `<title>${text(title)}</title>`;
  return `<rect x="${x.toFixed(1)}" y="${y}" width="${w.toFixed(1)}" height="${h}" ` +
    `fill="${fill}">${inside}</rect>`;
}

function text(value: string): string {
  return value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
