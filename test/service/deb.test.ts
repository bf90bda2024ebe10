/** The Debian package as a file; what it does when installed is tested by scripts/test-systemd. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { tempDir } from "../support/temp_dir.ts";

const SCRIPTS = join(import.meta.dir, "../../scripts");

function run(cmd: readonly string[]) {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...cmd]);
  return { exit: exitCode, stdout: `${stdout}`, stderr: `${stderr}` };
}

// Made by dpkg-deb, which other systems than Debian lack.
test.skipIf(Bun.which("dpkg-deb") === null)("scripts/deb makes a package that is whole", () => {
  const deb = run([join(SCRIPTS, "deb")]).stdout.trim();
  using dir = tempDir();
  expect(run(["dpkg-deb", "--raw-extract", deb, dir.path])).toMatchObject({ exit: 0, stderr: "" });
  const agent = run([join(dir.path, "usr/bin/agent"), "--version"]);
  const version = run(["dpkg-deb", "--field", deb, "Version"]);
  expect(agent).toMatchObject({ exit: 0, stdout: version.stdout });
  expect(readFileSync(join(dir.path, "usr/lib/systemd/system/zit-agent.service"), "utf8"))
    .toContain("\nExecStart=/usr/bin/agent run\n");
  // Whatever is in /etc is the administrator's.
  const files = run(["find", join(dir.path, "etc"), "-type", "f", "-printf", "/etc/%P\n"]).stdout;
  expect(readFileSync(join(dir.path, "DEBIAN/conffiles"), "utf8").split("\n").toSorted())
    .toEqual(files.split("\n").toSorted());
  for (const script of ["postinst", "prerm", "postrm"]) {
    expect(run(["sh", "-n", join(dir.path, "DEBIAN", script)])).toMatchObject({ exit: 0 });
  }

  if (Bun.which("lintian") === null) return;
  const lint = (...more: string[]) => run(["lintian", "--allow-root", ...more, deb]);
  expect(lint()).toMatchObject({ exit: 0, stdout: "" });
  // What is excused is found.
  expect(lint("--no-override").stdout).toContain("unstripped-binary-or-object");
}, 60_000);
