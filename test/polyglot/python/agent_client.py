"""A client of the lease agent, in the standard library alone. See docs/protocol.md.

    with Agent() as agent, agent.guard("project", wait_ms=5000) as token:
        ...                 # prepare the write; `token.stop` is set when it must not go on
        token.verify()      # the commit-point check
        ...                 # make it visible
"""

import collections
import contextlib
import itertools
import json
import os
import socket
import threading
import time

RECEIVE_BYTES = 65536


class AgentError(Exception):
    """The agent refused: `kind` says why (None for an error of JSON-RPC itself)."""

    RETRYABLE = {"unavailable", "not_holder", "grace", "busy", "draining", "limit"}

    def __init__(self, error):
        super().__init__(error["message"])
        data = error.get("data") or {}
        self.code = error["code"]
        self.kind = data.get("kind")
        self.holder = data.get("holder")
        self.retry_after_ms = data.get("retry_after_ms")
        self.retryable = self.kind in self.RETRYABLE


def default_socket():
    """Where the agent listens, as docs/protocol.md says."""
    named = os.environ.get("ZIT_AGENT_SOCKET")
    if named:
        return named
    directory = "/run" if os.getuid() == 0 else os.environ["XDG_RUNTIME_DIR"]
    return directory + "/zit-agent/agent.sock"


class Lines:
    """A connection as lines, each with the descriptors that came with it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self._partial = b""
        self._partial_fds = []
        self._lines = collections.deque()

    def send(self, data):
        self.socket.sendall(data)

    def next(self, timeout_s=None):
        """The next (line, descriptors); None at the end of the stream. TimeoutError when none comes."""
        while not self._lines:
            self.socket.settimeout(timeout_s)
            data, fds, flags, _ = socket.recv_fds(self.socket, RECEIVE_BYTES, 16)
            if flags & socket.MSG_CTRUNC:
                raise OSError("descriptors were lost: too many are open")
            if not data:
                return None
            self._split(data, fds)
        return self._lines.popleft()

    def _split(self, data, fds):
        # A receive never goes on behind a message with a descriptor: it is that of the last line
        # that began in what was received.
        lines = data.split(b"\n")
        lines[0] = self._partial + lines[0]
        held = [[] for _ in lines]
        held[0] = self._partial_fds
        last = len(lines) - 1 if lines[-1] or len(lines) == 1 else len(lines) - 2
        held[last] = held[last] + list(fds)
        self._partial, self._partial_fds = lines.pop(), held.pop()
        self._lines.extend((line, its) for line, its in zip(lines, held) if line.strip())

    def close(self):
        self.socket.close()


class Token:
    """A grant. `stop` is set when the write must not go on: expiring, lost, or the agent is gone."""

    def __init__(self, agent, grant, received_at):
        self._agent = agent
        self.secret = grant["token"]
        self.store = grant["store"]
        self.epoch = grant["epoch"]
        self.lost = None
        self.stop = threading.Event()
        # On CLOCK_BOOTTIME the agent's deadline is exact; in a time namespace of our own it is not,
        # so no later than what remained when the answer came.
        told = grant["deadline_boot_ms"]
        self.deadline_ms = min(told, received_at + grant["remaining_ms"])
        self._shift_ms = self.deadline_ms - told

    def verify(self):
        """The commit-point check; raises AgentError if the write must not be made visible."""
        sent_at = boot_ms()
        params = {"token": self.secret, "store": self.store}
        remaining = self._agent.call("verify", params)["remaining_ms"]
        self.deadline_ms = max(self.deadline_ms, sent_at + remaining)
        if self.lost or boot_ms() >= self.deadline_ms:
            raise AgentError({"code": -32005, "message": "lost", "data": {"kind": "lost"}})

    def notified(self, method, params):
        if method == "renewed":
            self.deadline_ms = max(self.deadline_ms, params["deadline_boot_ms"] + self._shift_ms)
            return
        if method == "lost":
            self.lost = params["message"]
        self.stop.set()


class Agent:
    """A connection to the agent; calls may come from several threads."""

    def __init__(self, path=None):
        self._lines = Lines(path or default_socket())
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._answers = {}
        self._tokens = {}
        self._early = collections.defaultdict(list)
        self._closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, method, params=None):
        """The result; raises AgentError with what the agent refused, ConnectionError if it is gone."""
        answered = threading.Event()
        box = {}
        with self._lock:
            if self._closed:
                raise ConnectionError("the agent closed the connection")
            identity = next(self._ids)
            self._answers[identity] = (answered, box)
            request = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}
            self._lines.send(json.dumps(request).encode() + b"\n")
        answered.wait()
        if "error" in box:
            raise AgentError(box["error"])
        if "result" not in box:
            raise ConnectionError("the agent closed the connection")
        return box["result"]

    @contextlib.contextmanager
    def guard(self, store, **params):
        """Runs the block while this node may write to the store."""
        grant = self.call("guard", {"store": store, "follow": True, **params})
        token = Token(self, grant, boot_ms())
        with self._lock:
            self._tokens[token.secret] = token
            for method, news in self._early.pop(token.secret, []):
                token.notified(method, news)
        try:
            yield token
        finally:
            with self._lock:
                del self._tokens[token.secret]
            self.call("release", {"token": token.secret})

    def _read(self):
        try:
            while (received := self._lines.next()) is not None:
                self._take(json.loads(received[0]))
        except OSError:
            pass
        with self._lock:
            self._closed = True
            for answered, _ in self._answers.values():
                answered.set()
            for token in self._tokens.values():
                token.notified("lost", {"message": "the agent is gone"})

    def _take(self, message):
        with self._lock:
            if "method" not in message:
                answered, box = self._answers.pop(message["id"], (None, None))
                if answered:
                    box.update(message)
                    answered.set()
                return
            params = message["params"]
            token = self._tokens.get(params.get("token"))
            if token:
                token.notified(message["method"], params)
            elif "token" in params:
                # Right behind the answer, before whoever asked has got that.
                self._early[params["token"]].append((message["method"], params))

    def close(self):
        with contextlib.suppress(OSError):
            self._lines.socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def boot_ms():
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
