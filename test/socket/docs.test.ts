import { describe, expect, test } from "bun:test";
import { openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { KINDS } from "../../src/lease/errors.ts";
import { MAX_PAGE, MAX_PURPOSE_LENGTH, MAX_WAIT_MS } from "../../src/socket/params.ts";
import {
  MAX_BACKLOG_BYTES,
  MAX_HELD_STORES,
  MAX_REQUEST_BYTES,
} from "../../src/socket/protocol.ts";
import { python, TemporaryDirectory, TestServer } from "./support/server.ts";

const TEXT = readFileSync(join(import.meta.dir, "../../docs/protocol.md"), "utf8");
/** Wherever its lines break. */
const PROSE = TEXT.replaceAll(/\s+/g, " ");
const METHODS = [
  ...["guard", "verify", "release", "held", "holder", "watch", "unwatch", "status", "leases"],
  ...["history", "stepdown"],
];

function codeBlocks(language: string): string[] {
  return [...TEXT.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\``, "gm"))].map((m) =>
    m[1]
  );
}

describe("docs/protocol.md", () => {
  test("has the table of errors that the agent has", () => {
    for (const [kind, { code, exit, meaning }] of Object.entries(KINDS)) {
      expect(TEXT).toContain(`| \`${kind}\` | ${code} | ${exit} | ${meaning} |`);
    }
  });

  test("has a section for every method, and no other", () => {
    const sections = [...TEXT.matchAll(/^### (.*)$/gm)].map(([, name]) => name);
    expect(sections).toEqual(METHODS);
  });

  test("names the limits that the code has", () => {
    expect(MAX_REQUEST_BYTES).toBe(1_024 * 1_024);
    expect(MAX_BACKLOG_BYTES).toBe(8 * 1_024 * 1_024);
    expect(PROSE).toContain(`at most ${MAX_HELD_STORES.toLocaleString("en")}`);
    expect(TEXT).toContain(`more than ${MAX_WAIT_MS} (24.8 days)`);
    expect(TEXT).toContain(`at most ${MAX_PURPOSE_LENGTH.toLocaleString("en")} characters`);
    expect(PROSE).toContain(`more than ${MAX_PAGE.toLocaleString("en")} counts as that`);
  });

  test("has examples that are JSON", () => {
    const lines = codeBlocks("json").flatMap((block) => block.trim().split("\n"));
    expect(lines.length).toBeGreaterThan(8);
    for (const line of lines) {
      expect(JSON.parse(line.replace(/^[→←] /, ""))).toMatchObject({ jsonrpc: "2.0" });
    }
  });

  test("has a Python client that runs a command with the lock", async () => {
    using directory = new TemporaryDirectory();
    const lockPath = join(directory.path, "lease.lock");
    writeFileSync(lockPath, "");
    await using server = await TestServer.start({
      guard(params, _connection, reply) {
        const fd = params.pass_lock ? openSync(lockPath, "r") : null;
        const lock = fd === null ? undefined : () => fd;
        const { store } = params;
        const result = {
          token: "t",
          store,
          epoch: 42,
          revision: 42,
          node: "n",
          lock_path: lockPath,
        };
        reply.ok({ ...result, remaining_ms: 1, deadline_boot_ms: 1, unguarded: null }, lock);
      },
    });
    const [client] = codeBlocks("python");
    const command = 'echo "$ZIT_LEASE_EPOCH $(readlink /proc/self/fd/$ZIT_LEASE_LOCK_FD)"; exit 0';
    const printed = await python(client, server.path, "project", "sh", "-c", command);
    expect(printed.trim()).toBe(`42 ${lockPath}`);
    await server.untilClosed(1);
  });
});
