/**
 * Which number the lock gets in the command.
 * @module
 */
import { readdirSync, readFileSync } from "node:fs";

const O_CLOEXEC = 0o2000000;

/**
 * The lowest number from 3 on that no descriptor has which the command inherits: the caller may have
 * opened files for it, and an outer guard has its own lock at 3.
 */
export function freeDescriptor(): number {
  const inherited = new Set(
    readdirSync("/proc/self/fdinfo").map(Number).filter((fd) => fd > 2 && isInherited(fd)),
  );
  let number = 3;
  while (inherited.has(number)) number++;
  return number;
}

function isInherited(fd: number): boolean {
  try {
    const flags = /^flags:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
    return flags !== undefined && (parseInt(flags, 8) & O_CLOEXEC) === 0;
  } catch {
    return false; // the descriptor of the listing itself
  }
}
