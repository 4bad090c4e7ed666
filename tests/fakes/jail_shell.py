"""What runs in a jail in the worker's place, so that a test can try things in there by hand.

Each line from the connection is a JSON list, an argument vector; the answer is one line of JSON:
``[exit status or minus signal, output and errors]``.
"""

import json
import socket

SHELL = """
import json, socket, subprocess
listener = socket.socket(fileno=3)
connection, _ = listener.accept()
for line in connection.makefile("r"):
    done = subprocess.run(json.loads(line), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    answer = json.dumps([done.returncode, done.stdout.decode(errors="replace")])
    connection.sendall(answer.encode() + b"\\n")
"""
COMMAND = ("/usr/bin/python3", "-I", "-S", "-c", SHELL)
_ANSWER_S = 60.0


def ask(edge: socket.socket, *argv: str) -> tuple[int, str]:
    """Run a program in the jail whose edge this is; its status and what it printed."""
    edge.settimeout(_ANSWER_S)
    edge.sendall(json.dumps(argv).encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        piece = edge.recv(65_536)
        if not piece:
            raise ConnectionError("the jail has ended")
        data += piece
    status, text = json.loads(data)
    return status, text
