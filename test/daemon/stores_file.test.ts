import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { readStoresFile } from "../../src/daemon/stores_file.ts";
import { tempDir } from "../support/temp_dir.ts";

test("readStoresFile() takes blanks around codes, and lines that end as on other systems", () => {
  using dir = tempDir();
  const path = join(dir.path, "stores");
  writeFileSync(path, "one\r\n  two \n\r\n  # three\r\n");
  expect([...readStoresFile(path)]).toEqual(["one", "two"]);
});
