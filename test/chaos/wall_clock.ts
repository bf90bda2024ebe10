/**
 * Steps the wall clock of one nats-server. libfaketime cannot: Go does not call the C library for
 * the time, but the kernel's vDSO. So the vDSO's function is replaced, in that process alone, by one
 * that asks the kernel and adds an offset to the wall clock; the other clocks stay as they are.
 * @module
 */
import { closeSync, openSync, readFileSync, readSync, writeSync } from "node:fs";

/** Whether it can be done on this machine: the code below is for one kind of processor. */
export const canStepServers = process.arch === "x64" && process.platform === "linux";

/**
 * `clock_gettime(edi, rsi)`: calls the kernel; for CLOCK_REALTIME (0), adds the eight bytes behind
 * the code to the seconds. Clobbers rax, rcx and r11, as the call it replaces may.
 */
const CODE = Buffer.from([
  ...[0xb8, 0xe4, 0x00, 0x00, 0x00], // mov eax, 228 (clock_gettime)
  ...[0x0f, 0x05], // syscall
  ...[0x85, 0xff], // test edi, edi
  ...[0x75, 0x0a], // jne out
  ...[0x48, 0x8b, 0x0d, 0x04, 0x00, 0x00, 0x00], // mov rcx, [rip + 4]: the offset
  ...[0x48, 0x01, 0x0e], // add [rsi], rcx
  ...[0xc3], // out: ret
]);

/** Sets the wall clock of process `pid` so many seconds off the machine's. */
export function stepWallClock(pid: number, seconds: number): void {
  const fd = openSync(`/proc/${pid}/mem`, "r+");
  try {
    const base = vdsoOf(pid);
    const image = Buffer.alloc(base.size);
    readSync(fd, image, 0, image.length, base.address);
    const at = base.address + functionAt(image, "__vdso_clock_gettime");
    const offset = Buffer.alloc(8);
    offset.writeBigInt64LE(BigInt(seconds));
    // In one write: a thread that is in there meanwhile is between the same instructions before and
    // after, once they are there; the first time, the server is frozen.
    writeSync(fd, Buffer.concat([CODE, offset]), 0, CODE.length + 8, at);
  } finally {
    closeSync(fd);
  }
}

function vdsoOf(pid: number): { address: number; size: number } {
  const line = readFileSync(`/proc/${pid}/maps`, "utf8").split("\n")
    .find((line) => line.endsWith("[vdso]"));
  const match = /^([0-9a-f]+)-([0-9a-f]+)/.exec(line ?? "");
  if (match === null) throw new Error(`Process ${pid} has no vDSO`);
  const [address, end] = [parseInt(match[1], 16), parseInt(match[2], 16)];
  return { address, size: end - address };
}

/** Finds a function in an ELF image by its dynamic symbols. */
function functionAt(image: Buffer, name: string): number {
  const u64 = (at: number) => Number(image.readBigUInt64LE(at));
  const sections = u64(0x28);
  const size = image.readUInt16LE(0x3a);
  const count = image.readUInt16LE(0x3c);
  for (let i = 0; i < count; i++) {
    const header = sections + i * size;
    if (image.readUInt32LE(header + 4) !== 11) continue; // SHT_DYNSYM
    const names = u64(sections + image.readUInt32LE(header + 0x28) * size + 0x18);
    const table = u64(header + 0x18);
    for (let at = table; at < table + u64(header + 0x20); at += 24) {
      const start = names + image.readUInt32LE(at);
      if (image.toString("latin1", start, image.indexOf(0, start)) === name) return u64(at + 8);
    }
  }
  throw new Error(`The vDSO has no ${name}`);
}
