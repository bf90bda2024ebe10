/** What docs/faults.md says of the faults. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { FAULTS } from "./faults/mod.ts";
import { HIDDEN_LIES } from "./hidden_lies.ts";
import { LATER_LIES } from "./later_lies.ts";
import { LIES } from "./lies.ts";

const TEXT = readFileSync(join(import.meta.dir, "../../docs/faults.md"), "utf8");

test("docs/faults.md has every fault in its table, and no other", () => {
  const table = /^\| fault \| `--fault` \|.*\n([^]*?)\n\n/m.exec(TEXT)![1]!;
  const names = table.split("\n").slice(1).flatMap((row) =>
    [...row.split("|")[2]!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!)
  );
  const known = FAULTS.map(({ name }) => name);
  expect(names.filter((name) => !name.startsWith("--")).sort()).toEqual(known.sort());
});

test("docs/faults.md tells how many doctored histories there are", () => {
  expect(TEXT).toContain(
    `on ${LIES.length + HIDDEN_LIES.length + LATER_LIES.length} doctored\nhistories`,
  );
});
