"""Listens on a socket and accepts nobody, as an agent that hangs: its queue is full, and connecting waits."""

import socket
import sys

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(0)
waiting = []
try:
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        client.connect(sys.argv[1])
        waiting.append(client)
except BlockingIOError:
    print("full", flush=True)
sys.stdin.read()
