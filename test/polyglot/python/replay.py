"""Replays exchanges with an agent: replay.py VARIABLES.json EXCHANGE.json…

The format is described in ../README.md.
"""

import fcntl
import glob
import json
import os
import re
import signal
import sys
import time

from agent_client import Lines

TIMEOUT_S = 60
ABILITIES = {"pass_lock"}


class Mismatch(Exception):
    pass


def fill(value, variables):
    """`value` with variables put in."""
    if isinstance(value, str) and value.startswith("$"):
        return variables[value[1:]]
    if isinstance(value, list):
        return [fill(each, variables) for each in value]
    if isinstance(value, dict):
        return {fill(name, variables): fill(each, variables) for name, each in value.items()}
    return value


TYPES = {
    "<string>": lambda value: isinstance(value, str),
    "<number>": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "<boolean>": lambda value: isinstance(value, bool),
    "<any>": lambda value: True,
}


def matches(pattern, value):
    if isinstance(pattern, str) and pattern in TYPES:
        return TYPES[pattern](value)
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            name in value and matches(each, value[name]) for name, each in pattern.items()
        )
    if isinstance(pattern, list):
        return (
            isinstance(value, list)
            and len(pattern) == len(value)
            and all(map(matches, pattern, value))
        )
    return type(pattern) is type(value) and pattern == value or (
        TYPES["<number>"](pattern) and TYPES["<number>"](value) and pattern == value
    )


class Exchange:
    def __init__(self, variables):
        self.socket = variables["socket"]
        self.variables = variables
        self.connections = {}
        self.unread = {}
        self.descriptors = {}

    def on(self, name):
        if name not in self.connections:
            self.connections[name] = Lines(self.socket)
            self.unread[name] = []
        return self.connections[name]

    def step(self, step):
        filled = {
            name: value if name in ("raw", "save") else fill(value, self.variables)
            for name, value in step.items()
        }
        action = next(name for name in step if name != "on")
        getattr(self, "do_" + action)(filled)

    def do_send(self, step):
        self.on(step["on"]).send(json.dumps(step["send"]).encode() + b"\n")

    def do_raw(self, step):
        def value(match):
            return str(self.variables[match[1]])

        self.on(step["on"]).send(re.sub(r"\$(\w+)", value, step["raw"]).encode())

    def do_receive(self, step):
        name, pattern = step["on"], step["receive"]
        lines, unread = self.on(name), self.unread[name]
        at = 0
        while True:
            if at == len(unread):
                try:
                    received = lines.next(TIMEOUT_S)
                except TimeoutError:
                    raise Mismatch(f"no {pattern} came; unread: {[each[0] for each in unread]}")
                if received is None:
                    raise Mismatch(f"no {pattern} came before the end; unread: {unread}")
                unread.append((json.loads(received[0]), received[1]))
            message, fds = unread[at]
            if matches(pattern, message):
                del unread[at]
                break
            at += 1
        for variable, path in step.get("save", {}).items():
            value = message
            for member in path.split("."):
                value = value[member]
            self.variables[variable] = value
        wanted = 1 if "descriptor" in step else 0
        if len(fds) != wanted:
            raise Mismatch(f"{len(fds)} descriptors came with {message}")
        if fds:
            self.descriptors[step["descriptor"]] = fds[0]

    def do_unread(self, step):
        if len(self.unread[step["on"]]) != step["unread"]:
            raise Mismatch(f"unread: {self.unread[step['on']]}")

    def do_shutdown(self, step):
        self.on(step["on"]).socket.shutdown(1)

    def do_close(self, step):
        self.on(step["on"]).close()

    def do_closed(self, step):
        received = self.on(step["on"]).next(TIMEOUT_S)
        if received is not None:
            raise Mismatch(f"not closed, but {received[0]}")

    def do_close_descriptor(self, step):
        os.close(self.descriptors.pop(step["close_descriptor"]))

    def do_lock(self, step):
        end = time.monotonic() + TIMEOUT_S
        while is_free(step["lock"]) != step["free"]:
            if not step["free"] or time.monotonic() > end:
                raise Mismatch(f"the lock {step['lock']} is {'taken' if step['free'] else 'free'}")
            time.sleep(0.005)

    def do_remove(self, step):
        os.unlink(step["remove"])

    def do_signal(self, step):
        os.kill(step["pid"], getattr(signal, step["signal"]))
        while step["signal"] == "SIGSTOP" and not stands(step["pid"]):
            time.sleep(0.001)

    def do_greater(self, step):
        if not step["greater"] > step["than"]:
            raise Mismatch(f"{step['greater']} is not greater than {step['than']}")


def stands(pid):
    """Whether each thread has stopped: one that runs gets the signal when it next enters the kernel."""
    try:
        for stat in glob.glob(f"/proc/{pid}/task/*/stat"):
            with open(stat, encoding="latin-1") as file:
                if file.read().rpartition(") ")[2][0] not in "tTZX":
                    return False
        return True
    except (FileNotFoundError, ProcessLookupError):  # a thread that has just ended
        return False


def is_free(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def main(variables_file, *files):
    failed = False
    with open(variables_file) as file:
        all_variables = json.load(file)
    for name in files:
        with open(name) as file:
            exchange = json.load(file)
        base = os.path.basename(name).removesuffix(".json")
        if not ABILITIES.issuperset(exchange.get("needs", [])):
            print("skipped", base)
            continue
        replayed = Exchange(dict(all_variables[base]))
        for number, step in enumerate(exchange["steps"], 1):
            try:
                replayed.step(step)
            except (Mismatch, OSError) as mismatch:
                print(f"{base}, step {number}: {mismatch}", file=sys.stderr)
                failed = True
                break
        else:
            print("ok", base)
        for lines in replayed.connections.values():
            lines.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
