/** Descriptors of this process. */
import { readdirSync, readlinkSync } from "node:fs";

/** What each open descriptor names, sorted; the one that lists them is not among them. */
export function openFds(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return [`${fd} ${readlinkSync(`/proc/self/fd/${fd}`)}`];
    } catch {
      return [];
    }
  }).sort();
}

/** What is open now and was not then: others may have been closed meanwhile. */
export function openedSince(before: readonly string[]): string[] {
  return openFds().filter((fd) => !before.includes(fd));
}
