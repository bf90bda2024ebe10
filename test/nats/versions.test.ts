import { describe, expect, test } from "bun:test";
import { checkServerVersion } from "../../src/nats/versions.ts";
import { SetupError } from "../../src/nats/setup_error.ts";
import { NatsServer, natsServerPath } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";

function verdict(version: string, allowUnsafe = false): "refused" | "warned" | "fine" {
  try {
    return checkServerVersion(version, allowUnsafe) === null ? "fine" : "warned";
  } catch (error) {
    expect(error).toBeInstanceOf(SetupError);
    expect((error as SetupError).exit).toBe(78);
    expect((error as SetupError).message).toContain(version);
    return "refused";
  }
}

describe("checkServerVersion()", () => {
  test.each(
    [
      ["2.8.4", "refused"],
      ["2.9.20", "refused"],
      ["2.9.21", "warned"],
      ["2.10.18", "warned"],
      ["2.10.19", "refused"],
      ["2.10.19-RC.1", "refused"],
      ["2.10.20", "warned"],
      ["2.12.13", "warned"],
      ["2.12.14", "fine"],
      ["2.14.0", "warned"],
      ["2.14.3", "warned"],
      ["2.14.4", "fine"],
      ["2.15.1", "fine"],
      ["3.0.0", "fine"],
      ["1.4.1", "refused"],
      ["unknown", "refused"],
    ] as const,
  )("judges %s as %s", (version, expected) => {
    expect(verdict(version)).toBe(expected);
  });

  test("warns when an unsafe server is accepted", () => {
    expect(verdict("2.9.10", true)).toBe("warned");
    expect(verdict("2.10.19", true)).toBe("warned");
  });
});

describe("NatsCoordinator on old servers", () => {
  test("refuses nats-server 2.9.10, and names the version and the fault", async () => {
    await using server = await NatsServer.start({ program: natsServerPath("bookworm") });
    await using subject = Subject.start({ urls: [server.url] });
    const problem = await subject.problem("server_version");
    expect(problem).toMatchObject({ fatal: true });
    expect(problem.message).toContain("2.9.10");
    expect(problem.message).toContain("nats-server#4320");
    expect(subject.nats.connected).toBe(false);
    expect((await subject.put("s", 0)).kind).toBe("unknown");
  });

  test("uses nats-server 2.9.10 with a warning when unsafe servers are allowed", async () => {
    await using server = await NatsServer.start({ program: natsServerPath("bookworm") });
    await using subject = await Subject.connect({ urls: [server.url], allowUnsafeServer: true });
    expect(subject.nats.warnings.map(({ check }) => check))
      .toEqual(["server_version", "first_revision"]);
    expect((await subject.put("s", 0)).kind).toBe("ok");
    expect((await subject.put("s", 0)).kind).toBe("conflict");
  });

  test("uses nats-server 2.10.27 with a warning", async () => {
    await using server = await NatsServer.start({ program: natsServerPath("trixie") });
    await using subject = await Subject.connect({ urls: [server.url] });
    expect(subject.nats.warnings).toMatchObject([{ check: "server_version" }]);
    expect(subject.nats.warnings[0].message).toContain("2.10.27");
    const put = await subject.put("s", 0);
    expect(put.kind === "ok" && put.value).toBeGreaterThan(Date.UTC(2024, 0) * 1_000);
  });
});
