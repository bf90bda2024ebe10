/**
 * Directories in which only this user, and root, may change what is there.
 * @module
 */
import type { Stats } from "node:fs";

/** Who else may change what a directory holds: its owner, or everybody; null: nobody. */
export function otherWriter({ uid, mode }: Stats, own: number): "owner" | "everybody" | null {
  if (uid !== own && uid !== 0) return "owner";
  return (mode & 0o002) === 0 ? null : "everybody";
}
