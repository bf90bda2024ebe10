/**
 * The benchmarks by name; see scripts/bench.
 * @module
 */
import { coordinator } from "./coordinator.ts";
import { guard } from "./guard.ts";
import { held } from "./held.ts";
import { scale } from "./scale.ts";
import { socket } from "./socket.ts";
import { start } from "./start.ts";
import { view } from "./view.ts";

const BENCHMARKS: Readonly<Record<string, () => Promise<void>>> = {
  coordinator,
  socket,
  held,
  view,
  guard,
  start,
  scale,
};

const names = process.argv.slice(2);
if (names[0] === "--list") {
  for (const name of Object.keys(BENCHMARKS)) console.log(name);
  process.exit(0);
}
const unknown = names.find((name) => !(name in BENCHMARKS));
if (unknown !== undefined) {
  console.error(`bench: there is no benchmark ${unknown}: ${Object.keys(BENCHMARKS).join(", ")}`);
  process.exit(64);
}
for (const name of names.length > 0 ? names : Object.keys(BENCHMARKS)) await BENCHMARKS[name]();
process.exit(0);
