/**
 * A disk whose machine can lose its power: an ext4 of its own in a file. What was not synced when
 * {@linkcode PowerDisk.cut} came is gone, as far as ext4 had not written it of its own accord.
 * @module
 */
import { mkdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tempDir } from "./temp_dir.ts";

/** Plenty for the streams of a test; the file is sparse. */
const SIZE_BYTES = 128 * 1024 * 1024;

/**
 * FS_IOC_GOINGDOWN with "no log flush": the file system ends at once and drops what it has in memory,
 * its journal's too. What file systems are themselves tested with. Perl is on every Debian.
 */
const SHUT_DOWN = `my $how = pack("L", 2); sysopen(my $fs, $ARGV[0], 0) or die "open: $!\\n";
  ioctl($fs, 0x8004587D, $how) or die "ioctl: $!\\n";`;

function run(...command: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(command);
  if (exitCode !== 0) throw new Error(`${command.join(" ")} failed: ${stderr}`);
}

/** A mounted disk. */
export class PowerDisk {
  readonly path: string;
  #image: string;
  #copies = 0;

  /** Makes a disk in a file and mounts it at `path`. Takes root and loop devices; throws without. */
  static mount(path: string): PowerDisk {
    const disk = new PowerDisk(path);
    mkdirSync(path, { recursive: true });
    writeFileSync(disk.#image, "");
    truncateSync(disk.#image, SIZE_BYTES);
    run("mkfs.ext4", "-q", "-F", disk.#image);
    disk.#mount();
    return disk;
  }

  private constructor(path: string) {
    this.path = path;
    this.#image = `${path}.img`;
  }

  /** Everything so far is on the disk. */
  sync(): void {
    run("sync", "--file-system", this.path);
  }

  /** The power fails. Whoever used the disk has to be ended; then {@linkcode restore} it. */
  cut(): void {
    run("perl", "-e", SHUT_DOWN, this.path);
  }

  /** The power is back: what had reached the disk is there, after a replay of its journal. */
  restore(): void {
    run("umount", "--lazy", this.path);
    // From a copy: the dead file system lives on in each mount namespace that was made meanwhile, and
    // to mount its image again would give it back.
    const copy = `${this.path}.${++this.#copies}.img`;
    run("cp", "--sparse=always", this.#image, copy);
    rmSync(this.#image);
    this.#image = copy;
    this.#mount();
  }

  /** Lazily: whoever still uses it ends later, and the error that matters is another one. */
  [Symbol.dispose](): void {
    run("umount", "--lazy", this.path);
  }

  #mount(): void {
    run("mount", "-o", "loop", this.#image, this.path);
  }
}

/** Why there can be no such disk here, or null. */
export const noPowerDisk: string | null = (() => {
  using dir = tempDir();
  try {
    PowerDisk.mount(`${dir.path}/disk`)[Symbol.dispose]();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
})();
if (noPowerDisk) console.warn(`Tests with power failures are skipped: ${noPowerDisk}`);
