/**
 * Ends what a test process started, also when that process is killed: a shell at the other end of a
 * pipe that closes with us.
 * @module
 */

const SCRIPT = `
while read -r verb what; do
  case $verb in
    pid) pids="$pids $what " ;;
    done) pids=$(printf '%s' "$pids" | sed "s/ $what / /") ;;
    dir) dirs="$dirs $what" ;;
  esac
done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
for dir in $dirs; do rm -rf "$dir"; done
`;

let shell: Bun.Subprocess<"pipe", "ignore", "ignore"> | null = null;

function tell(line: string): void {
  shell ??= Bun.spawn(["sh", "-c", SCRIPT], {
    stdin: "pipe",
    stdout: "ignore",
    stderr: "ignore",
    // A group of its own, or Ctrl-C would end it before it could end the others.
    detached: true,
  });
  shell.unref();
  shell.stdin.write(line + "\n");
  shell.stdin.flush();
}

/** Kills the process when this one ends. */
export function reap(pid: number): void {
  tell(`pid ${pid}`);
}

/** The process has ended: its id may be another's now. */
export function reaped(pid: number): void {
  tell(`done ${pid}`);
}

/** Removes the directory (a path without spaces) when this process ends. */
export function reapDir(path: string): void {
  tell(`dir ${path}`);
}
