"""Types at a program on a terminal of its own, and checks what the screen says.

    terminal.py STEPS PROGRAM [ARG...]

STEPS is a JSON list of ["send", TEXT], ["expect", REGEX], ["resize", "ROWS COLUMNS"], ["wait",
SECONDS] and ["touch", FILE], which tells whoever waits for the file that it came so far; an expected
text is looked for behind the one before. Prints what was on the screen, then "exit STATUS". Exits 1
if a text did not come.
"""
import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time

# For a busy machine; a text that does not come at all costs a test as long.
PATIENCE_SECONDS = 20


def main():
    steps = json.loads(sys.argv[1])
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(sys.argv[2], sys.argv[2:])
    seen, behind = "", 0
    for kind, text in steps:
        if kind == "send":
            os.write(terminal, text.encode())
            continue
        if kind == "resize":
            rows, columns = map(int, text.split())
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            continue
        if kind == "wait":
            time.sleep(float(text))
            continue
        if kind == "touch":
            open(text, "w").close()
            continue
        until = time.monotonic() + PATIENCE_SECONDS
        while not (match := re.compile(text).search(seen, behind)):
            more = read(terminal, until)
            if more is None:
                print(seen)
                print(f"did not come: {text!r} behind {seen[behind:]!r}")
                os.kill(pid, 9)
                sys.exit(1)
            seen += more
        behind = match.end()
    while (more := read(terminal, time.monotonic() + PATIENCE_SECONDS)) is not None:
        seen += more
    print(seen)
    print("exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def read(terminal, until):
    """What is there next; None at the end, or when it is too late."""
    if not select.select([terminal], [], [], max(0, until - time.monotonic()))[0]:
        return None
    try:
        return os.read(terminal, 4096).decode(errors="replace") or None
    except OSError:  # the last user of the terminal is gone
        return None


main()
