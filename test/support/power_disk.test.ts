import { expect, test } from "bun:test";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { noPowerDisk, PowerDisk } from "./power_disk.ts";
import { tempDir } from "./temp_dir.ts";

test.skipIf(noPowerDisk !== null)(
  "cut() drops what was written and not synced, and nothing that was synced",
  () => {
    using dir = tempDir();
    using disk = PowerDisk.mount(join(dir.path, "disk"));
    const [synced, late] = ["synced", "late"].map((name) => join(disk.path, name));
    const fd = openSync(synced, "w");
    writeFileSync(fd, "kept");
    fsyncSync(fd);
    closeSync(fd);
    writeFileSync(late, "lost");
    disk.cut();
    expect(() => writeFileSync(synced, "more")).toThrow();
    disk.restore();
    expect(readFileSync(synced, "utf8")).toBe("kept");
    expect(existsSync(late)).toBe(false);
    disk.sync();
  },
);
