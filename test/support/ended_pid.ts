/** The number of a process that ran a moment ago. */
export function endedPid(): number {
  return Bun.spawnSync(["true"]).pid;
}
